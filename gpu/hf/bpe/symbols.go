package bpe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// symbols are the tokens that the characters of a piece begin as, in a vocabulary of characters.
type symbols struct {
	basic    []int32          // by character of the basic plane; absent where the vocabulary has none
	ids      map[string]int32 // all tokens by their spelling
	bytes    [256]int32       // <0x00> to <0xFF>; absent where there is none
	fallback bool             // a character without a token is written by its bytes
	unknown  int32            // the token of other characters; absent leaves them out
	fuse     bool             // unknown characters in a row are one token
	// crossed are the characters that a merge joins to a word mark behind them; nil where pieces are not cut at word marks.
	crossed map[rune]bool
}

// wordMark stands for a space in vocabularies of SentencePiece.
const wordMark = '\u2581'

// newSymbols makes the tables of a vocabulary's characters. levels is true where text comes in the alphabet of bytes.
func newSymbols(m *model, v *vocabulary, levels bool) (*symbols, error) {
	s := &symbols{basic: make([]int32, 1<<16), ids: v.ids, fallback: m.ByteFallback, fuse: m.FuseUnk, unknown: absent}
	if m.UnkToken != nil {
		id, ok := v.ids[*m.UnkToken]
		if !ok {
			return nil, fmt.Errorf("model.unk_token: %q is not in model.vocab", *m.UnkToken)
		}
		s.unknown = id
	}
	for i := range s.basic {
		s.basic[i] = absent
	}
	for token, id := range v.ids {
		if r, size := utf8.DecodeRuneInString(token); size == len(token) && r < 1<<16 && (r != utf8.RuneError || size == 3) {
			s.basic[r] = id
		}
	}
	return s, s.checkBytes(v, levels)
}

// checkBytes refuses a vocabulary that cannot write every text, unless a token stands for the unknown.
func (s *symbols) checkBytes(v *vocabulary, levels bool) error {
	for b := range s.bytes {
		name := fmt.Sprintf("<0x%02X>", b)
		id, ok := v.ids[name]
		if s.bytes[b] = id; !ok {
			s.bytes[b] = absent
			if s.fallback && s.unknown == absent {
				return fmt.Errorf("model.vocab: no token %q, and model.unk_token is null: text would be lost", name)
			}
		}
	}
	switch {
	case levels:
		for b := range 256 {
			token := v.alphabet.spellToken(string([]byte{byte(b)}))
			if _, ok := v.ids[token]; !ok && !isRareByte(byte(b)) {
				return fmt.Errorf("model.vocab: no token %q for byte 0x%02x: the vocabulary is not one of bytes", token, b)
			}
		}
	case !s.fallback && s.unknown == absent:
		return errors.New("model.byte_fallback is false and model.unk_token is null: characters without a token would be lost")
	}
	return nil
}

// findCrossings finds where pieces may be cut: before a word mark that no merge joins to the character before it.
//
// Invariant: no token that a merge makes holds a character that is not in crossed and a word mark behind it.
func (s *symbols) findCrossings(results []string) {
	if _, ok := s.ids[string(wordMark)]; !ok {
		return
	}
	s.crossed = map[rune]bool{}
	for _, token := range results {
		for at := 0; ; {
			i := strings.Index(token[at:], string(wordMark))
			if i < 0 {
				break
			}
			if at += i; at > 0 {
				r, _ := utf8.DecodeLastRuneInString(token[:at])
				s.crossed[r] = true
			}
			at += utf8.RuneLen(wordMark)
		}
	}
}

// cutWords hands on a piece in parts that merges do not reach over.
func (s *symbols) cutWords(piece string, give func(string)) {
	if s.crossed == nil {
		give(piece)
		return
	}
	done := 0
	for at := 0; at < len(piece); {
		i := strings.Index(piece[at:], string(wordMark))
		if i < 0 {
			break
		}
		at += i
		if at > done {
			if r, size := utf8.DecodeLastRuneInString(piece[:at]); !s.crossed[r] && (r != utf8.RuneError || size == 3) {
				give(piece[done:at])
				done = at
			}
		}
		at += utf8.RuneLen(wordMark)
	}
	give(piece[done:])
}

// appendSymbols appends the tokens of a piece's characters, as merge_word of the library has it: a token for unknown characters
// is put behind the bytes that follow them.
func (s *symbols) appendSymbols(dst []int32, piece string) []int32 {
	pending := false
	for i := 0; i < len(piece); {
		r, size := utf8.DecodeRuneInString(piece[i:])
		char := piece[i : i+size]
		i += size
		if id := s.symbolOf(r, char); id != absent {
			if pending {
				dst, pending = append(dst, s.unknown), false
			}
			dst = append(dst, id)
			continue
		}
		if s.fallback {
			begin := len(dst)
			for k := range len(char) {
				dst = append(dst, s.bytes[char[k]])
			}
			if !slices.Contains(dst[begin:], absent) {
				continue
			}
			dst = dst[:begin]
		}
		if s.unknown == absent {
			continue
		}
		if pending && !s.fuse {
			dst = append(dst, s.unknown)
		}
		pending = true
	}
	if pending {
		dst = append(dst, s.unknown)
	}
	return dst
}

// symbolOf is the token of a character; absent for a byte that is no character.
func (s *symbols) symbolOf(r rune, char string) int32 {
	if r == utf8.RuneError && len(char) == 1 {
		return absent
	}
	if r < 1<<16 {
		return s.basic[r]
	}
	if id, ok := s.ids[char]; ok {
		return id
	}
	return absent
}

// encodeCharacters appends the tokens of a piece of a vocabulary of characters.
func (v *vocabulary) encodeCharacters(dst []int32, piece string, barred []bool) []int32 {
	begin := len(dst)
	dst = v.symbols.appendSymbols(dst, piece)
	n := len(dst) - begin
	if n > shortPiece {
		ids := slices.Clone(dst[begin:])
		return v.mergeLong(dst[:begin], ids, barred)
	}
	if n < 2 {
		return dst
	}
	var room [shortPiece]merge
	next := room[:n]
	ids := dst[begin:]
	for i := range n - 1 {
		next[i] = v.merges.mergeOf(ids[i], ids[i+1]).unlessBarred(barred)
	}
	next[n-1].rank = unranked
	return dst[:begin+v.mergeShort(ids, next, barred)]
}
