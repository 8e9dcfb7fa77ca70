package producers

import (
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// Piece is a part of a rollout's text that the policy wrote, or that others wrote.
type Piece struct {
	Text string
	// Sampled: the policy wrote it; else it was given.
	Sampled bool
	// Control: it is a token that controls the model, such as a chat's mark. The spelling of a control token in other tokens is no such
	// piece.
	Control bool
	// Last: it ends a turn of the policy's.
	Last bool
}

// controlling is a tokenizer that writes every text without its control tokens, so that a spelling and a token can be told apart.
type controlling interface {
	Special(id int32) bool
	Token(id int32) string
	EncodeMarked(text string, mark rune) []int32
}

// Pieces are [Transcript.Text] in order, for rewards that read marks in it: the writer of a mark, and whether it is a mark. Of a further
// segment the first piece is the control token nearest before the sampled tokens. nil where the tokenizer has no control tokens to tell,
// and after the rollout was scored.
func (t *Transcript) Pieces() []Piece {
	if t.pieces == nil {
		return nil
	}
	return t.pieces()
}

// listPieces returns the pieces of segments, whose turns are in order.
func listPieces(tokenizer Tokenizer, segments []schemas.Segment, turns []schemas.Turn) []Piece {
	tok, ok := tokenizer.(controlling)
	if !ok {
		return nil
	}
	var out []Piece
	for i := range segments {
		s := &segments[i]
		at := 0
		if i > 0 {
			at = continuationStart(s, tok)
		}
		for len(turns) > 0 && turns[0].Segment == i {
			out = appendPieces(out, tok, tokenizer.Decode, s.Tokens[at:turns[0].Start], false)
			out = appendPieces(out, tok, tokenizer.Decode, s.Tokens[turns[0].Start:turns[0].End], true)
			at, turns = turns[0].End, turns[1:]
		}
		out = appendPieces(out, tok, tokenizer.Decode, s.Tokens[at:], false)
	}
	return out
}

// continuationStart returns where a segment that an agent wrote anew goes on from its earlier text.
func continuationStart(s *schemas.Segment, tok controlling) int {
	first := slices.Index(s.ActionMask, 1)
	if first < 0 {
		return len(s.Tokens)
	}
	for at := first - 1; at >= 0; at-- {
		if tok.Special(s.Tokens[at]) {
			return at
		}
	}
	return first
}

// appendPieces appends the pieces of tokens that the same side wrote.
func appendPieces(out []Piece, tok controlling, decode func([]int32) string, ids []int32, sampled bool) []Piece {
	for at := 0; at < len(ids); {
		p := Piece{Sampled: sampled, Control: tok.Special(ids[at])}
		end := at + 1
		for !p.Control && end < len(ids) && !tok.Special(ids[end]) {
			end++
		}
		if p.Text = decode(ids[at:end]); p.Control {
			p.Text = tok.Token(ids[at])
		}
		p.Last, at = sampled && end == len(ids), end
		out = append(out, p)
	}
	return out
}
