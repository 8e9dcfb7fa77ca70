package producers

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
)

// stopTokens finds the tokens at which a turn may end that is to end at a text. It is used by many episodes at once.
type stopTokens struct {
	tok Tokenizer
	mu  sync.Mutex
	// with are the tokens whose text has a character, sorted; found by going over the vocabulary once.
	with map[byte][]int32
}

func newStopTokens(tok Tokenizer) *stopTokens { return &stopTokens{tok: tok, with: map[byte][]int32{}} }

// stops is where a turn ends.
type stops struct {
	// tokens are all tokens that the policy stops at; at the tokens in hard the turn ends, at the others if any of the texts is there.
	tokens, hard []int32
	texts        []string
}

// stopsFor returns where a turn ends by the options.
func (s *stopTokens) stopsFor(o GenerateOptions) (stops, error) {
	out := stops{tokens: o.Stop, hard: o.Stop}
	if len(o.StopTexts) == 0 {
		return out, nil
	}
	out.hard = slices.Clone(o.Stop)
	var soft []int32
	for _, text := range o.StopTexts {
		if text == "" || !isStoppable(text[len(text)-1]) {
			return stops{}, fmt.Errorf("stop text %q: it must end in a printable ASCII character or a line break", text)
		}
		if id, ok := s.tok.ID(text); ok {
			out.hard = append(out.hard, id)
			continue
		}
		soft, out.texts = append(soft, s.tokensWith(text[len(text)-1])...), append(out.texts, text)
	}
	out.tokens = slices.Concat(out.hard, soft)
	slices.Sort(out.tokens)
	out.tokens = slices.Compact(out.tokens)
	return out, nil
}

// isStoppable reports whether a turn can be made to stop at a character.
func isStoppable(c byte) bool { return c == '\n' || c > ' ' && c < 0x7f }

// tokensWith returns the tokens whose text has the character.
func (s *stopTokens) tokensWith(c byte) []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ids, known := s.with[c]; known {
		return ids
	}
	var ids []int32
	text := func(id int32) string { return s.tok.Decode([]int32{id}) }
	if t, ok := s.tok.(tokenizer.Speller); ok {
		text = t.Token
	}
	for id := range int32(s.tok.Size()) {
		if strings.IndexByte(text(id), c) >= 0 {
			ids = append(ids, id)
		}
	}
	s.with[c] = ids
	return ids
}
