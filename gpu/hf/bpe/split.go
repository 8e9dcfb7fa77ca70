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
	split(text string, piece func(string))
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

// class is what a pattern asks of a character. Letters, numbers and spaces exclude one another.
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

// at is the class of the character that begins at i, which is within text, and how many bytes it has.
func (c *classes) at(text string, i int) (class, int) {
	if b := text[i]; b < utf8.RuneSelf {
		return c.basic[b], 1
	}
	r, size := utf8.DecodeRuneInString(text[i:])
	if r < 1<<16 {
		return c.basic[r], size
	}
	return classOf(r), size
}

// run is where the characters of a class that follow one another from i on end.
func (c *classes) run(text string, i int, of class) int {
	for i < len(text) {
		have, size := c.at(text, i)
		if have != of {
			break
		}
		i += size
	}
	return i
}

// blank is where a run of spaces and newlines from i on ends, where its last newline ends (0 without one), and where its last
// character begins.
func (c *classes) blank(text string, i int) (end, line, last int) {
	for i < len(text) {
		have, size := c.at(text, i)
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

func (m *modern) split(text string, piece func(string)) {
	for text != "" {
		n := m.next(text)
		piece(text[:n])
		text = text[n:]
	}
}

// next is the length of the first piece: the first alternative of the pattern that matches.
func (m *modern) next(text string) int {
	have, size := m.at(text, 0)
	switch have {
	case letter:
		return m.run(text, size, letter)
	case number:
		for n := 1; n < m.digits && size < len(text); n++ {
			more, width := m.at(text, size)
			if more != number {
				break
			}
			size += width
		}
		return size
	}
	if text[0] == '\'' {
		if n := contraction(text, true); n > 0 {
			return n
		}
	}
	after := newline // as good as the end of the text
	if size < len(text) {
		after, _ = m.at(text, size)
	}
	switch {
	case have != newline && after == letter:
		return m.run(text, size, letter)
	case have == other, text[0] == ' ' && after == other:
		return m.run(text, m.run(text, size, other), newline)
	}
	end, line, last := m.blank(text, 0)
	if line > 0 {
		return line
	}
	return beforeNext(text, end, last)
}

// beforeNext is how much of a run of spaces that begins the text is a piece: all but the last, which goes with what follows, but
// for a run that ends the text and a single space.
func beforeNext(text string, end, last int) int {
	if end == len(text) || last == 0 {
		return end
	}
	return last
}

// gpt2 splits by GPT-2's pattern.
type gpt2 struct{ *classes }

func (g *gpt2) split(text string, piece func(string)) {
	for text != "" {
		n := g.next(text)
		piece(text[:n])
		text = text[n:]
	}
}

func (g *gpt2) next(text string) int {
	if text[0] == '\'' {
		if n := contraction(text, false); n > 0 {
			return n
		}
	}
	have, size := g.at(text, 0)
	if text[0] == ' ' && size < len(text) {
		if after, width := g.at(text, size); after != space && after != newline {
			have, size = after, size+width
		}
	}
	if have != space && have != newline {
		return g.run(text, size, have)
	}
	end, _, last := g.blank(text, 0)
	return beforeNext(text, end, last)
}

// contraction is the length of 's, 't, 're, 've, 'm, 'll or 'd at the beginning of text, which begins with '; 0 without one. With
// fold the letters may be of either case, the long s (U+017F) included, which folds to s.
func contraction(text string, fold bool) int {
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
