package bpe

import (
	"unicode"
	"unicode/utf8"
)

// The patterns that are split by hand.
const (
	// PatternQwen2 is that of Qwen 2, 2.5 and 3.
	PatternQwen2 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// PatternLlama3 is that of Llama 3 to 3.3: numbers are taken by up to three digits.
	PatternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// PatternGPT2 is that of GPT-2, which the ByteLevel pre-tokenizer has unless use_regex is false.
	PatternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

// splitter cuts text into pieces and hands them on in order. Joined, the pieces are the text.
type splitter interface {
	splitText(text string, piece func(string))
}

// newSplitter is the splitter of a pattern.
func newSplitter(pattern string, classes *classes) (splitter, error) {
	switch pattern {
	case PatternQwen2:
		return &modern{classes, 1}, nil
	case PatternLlama3:
		return &modern{classes, 3}, nil
	case PatternGPT2:
		return &gpt2{classes}, nil
	}
	return newExpression(pattern)
}

// class is a kind of character that a pattern tells apart. Letters, numbers and spaces exclude one another.
type class uint8

const (
	other class = iota // and bytes that are no character
	letter
	number
	space   // but for the next
	newline // \r and \n
)

// classes are the classes of the characters of the basic plane.
type classes struct{ basic [1 << 16]class }

func newClasses() *classes {
	c := &classes{}
	for r := range c.basic {
		c.basic[r] = classOf(rune(r))
	}
	return c
}

func classOf(r rune) class {
	switch {
	case r == '\r' || r == '\n':
		return newline
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// classAt is the class of the character that begins at i, within text, and its length in bytes.
func (c *classes) classAt(text string, i int) (class, int) {
	if b := text[i]; b < utf8.RuneSelf {
		return c.basic[b], 1
	}
	r, size := utf8.DecodeRuneInString(text[i:])
	if r < 1<<16 {
		return c.basic[r], size
	}
	return classOf(r), size
}

// runEnd is the end of the run of characters of a class that begins at i.
func (c *classes) runEnd(text string, i int, of class) int {
	for i < len(text) {
		have, size := c.classAt(text, i)
		if have != of {
			break
		}
		i += size
	}
	return i
}

// blankEnds is the end of the run of spaces and newlines that begins at i, the end of its last newline (0 without a newline),
// and the beginning of its last character.
func (c *classes) blankEnds(text string, i int) (end, line, last int) {
	for i < len(text) {
		have, size := c.classAt(text, i)
		if have != space && have != newline {
			break
		}
		last = i
		i += size
		if have == newline {
			line = i
		}
	}
	return i, line, last
}

// modern splits by the pattern of Qwen 2 and Llama 3, which differ in how many digits go together.
type modern struct {
	*classes
	digits int
}

func (m *modern) splitText(text string, piece func(string)) {
	for text != "" {
		n := m.nextLength(text)
		piece(text[:n])
		text = text[n:]
	}
}

// nextLength is the length of the first piece: the first alternative of the pattern that matches.
func (m *modern) nextLength(text string) int {
	have, size := m.classAt(text, 0)
	switch have {
	case letter:
		return m.runEnd(text, size, letter)
	case number:
		for n := 1; n < m.digits && size < len(text); n++ {
			more, width := m.classAt(text, size)
			if more != number {
				break
			}
			size += width
		}
		return size
	}
	if text[0] == '\'' {
		if n := contractionLength(text, true); n > 0 {
			return n
		}
	}
	after := newline // as good as the end of the text
	if size < len(text) {
		after, _ = m.classAt(text, size)
	}
	switch {
	case have != newline && after == letter:
		return m.runEnd(text, size, letter)
	case have == other, text[0] == ' ' && after == other:
		return m.runEnd(text, m.runEnd(text, size, other), newline)
	}
	end, line, last := m.blankEnds(text, 0)
	if line > 0 {
		return line
	}
	return beforeNext(text, end, last)
}

// beforeNext is the length of the piece that a run of spaces at the beginning of a text makes: all but the last space, which
// goes with the text after it. A run that ends the text, and a single space, are whole pieces.
func beforeNext(text string, end, last int) int {
	if end == len(text) || last == 0 {
		return end
	}
	return last
}

// gpt2 splits by GPT-2's pattern.
type gpt2 struct{ *classes }

func (g *gpt2) splitText(text string, piece func(string)) {
	for text != "" {
		n := g.nextLength(text)
		piece(text[:n])
		text = text[n:]
	}
}

func (g *gpt2) nextLength(text string) int {
	if text[0] == '\'' {
		if n := contractionLength(text, false); n > 0 {
			return n
		}
	}
	have, size := g.classAt(text, 0)
	if text[0] == ' ' && size < len(text) {
		if after, width := g.classAt(text, size); after != space && after != newline {
			have, size = after, size+width
		}
	}
	if have != space && have != newline {
		return g.runEnd(text, size, have)
	}
	end, _, last := g.blankEnds(text, 0)
	return beforeNext(text, end, last)
}

// contractionLength is the length of 's, 't, 're, 've, 'm, 'll or 'd at the beginning of text, which begins with '; 0 without a
// contraction. With fold the letters may be of either case, the long s (U+017F) included, which folds to s.
func contractionLength(text string, fold bool) int {
	at := func(i int) byte {
		if i >= len(text) {
			return 0
		}
		if b := text[i]; fold && b >= 'A' && b <= 'Z' {
			return b + 'a' - 'A'
		}
		return text[i]
	}
	switch at(1) {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if at(2) == 'e' {
			return 3
		}
	case 'l':
		if at(2) == 'l' {
			return 3
		}
	case 0xc5:
		if fold && at(2) == 0xbf {
			return 3
		}
	}
	return 0
}
