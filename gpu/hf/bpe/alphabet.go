package bpe

import "unicode/utf8"

// alphabet maps bytes to the characters that stand for them in a byte-level vocabulary, and back: printable Latin-1
// characters stand for themselves, the other bytes for U+0100 on, in their order.
type alphabet struct {
	char [256]rune
	byte map[rune]byte
}

func newAlphabet() *alphabet {
	a := &alphabet{byte: make(map[rune]byte, 256)}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if b < '!' || b > '~' && b < 0xa1 || b == 0xad {
			r = next
			next++
		}
		a.char[b], a.byte[r] = r, byte(b)
	}
	return a
}

// tokenBytes are the bytes that a token of the vocabulary stands for; false where a character of it stands for no byte.
func (a *alphabet) tokenBytes(token string) (string, bool) {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		b, ok := a.byte[r]
		if !ok {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), true
}

// spellToken is the spelling of bytes in the vocabulary.
func (a *alphabet) spellToken(text string) string {
	out := make([]byte, 0, 2*len(text))
	for i := range len(text) {
		out = utf8.AppendRune(out, a.char[text[i]])
	}
	return string(out)
}
