package bpe

import "unicode/utf8"

// Stream decodes ids as they come and holds back a character until all its bytes have come. The texts of its calls, joined, are
// Decode's. A single goroutine uses it.
type Stream struct {
	tokenizer *Tokenizer
	held      []byte // less than a character
}

// Stream begins a text.
func (t *Tokenizer) Stream() *Stream { return &Stream{tokenizer: t} }

// Next returns the text that an id completes; "" where that is nothing yet. Bytes that no further byte can make a character
// are returned as they are.
func (s *Stream) Next(id int32) string {
	s.held = append(s.held, s.tokenizer.Token(id)...)
	cut := len(s.held) - partialRuneLen(s.held)
	out := string(s.held[:cut])
	s.held = append(s.held[:0], s.held[cut:]...)
	return out
}

// Rest returns the held bytes: the beginning of a character that was never finished.
func (s *Stream) Rest() string {
	out := string(s.held)
	s.held = s.held[:0]
	return out
}

// partialRuneLen is the number of bytes at the end of b that begin a character.
func partialRuneLen(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
