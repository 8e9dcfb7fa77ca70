package bpe

import (
	"fmt"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// expression splits by a regular expression: each match is a piece, and so is the text between two matches.
type expression struct{ compiled *regexp2.Regexp }

func newExpression(pattern string) (*expression, error) {
	// Without a bound on its memory, and a time limit, matching cannot fail.
	// A caret and a dollar sign stand at the ends of lines in Oniguruma, which the library has.
	compiled, err := regexp2.Compile(pattern, regexp2.Multiline, regexp2.OptionMaxBacktrackingStackSize(-1))
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	return &expression{compiled}, nil
}

func (e *expression) splitText(text string, piece func(string)) {
	done := 0
	give := func(end int) {
		if end > done {
			piece(text[done:end])
			done = end
		}
	}
	e.findMatches(text, func(begin, end int) {
		give(begin)
		give(end)
	})
	give(len(text))
}

// findMatches finds the matches. An empty match right behind another is none.
func (e *expression) findMatches(text string, give func(begin, end int)) {
	runes := make([]rune, 0, len(text))
	begins := make([]int, 0, len(text)+1) // where each character begins, and where the text ends
	for i, r := range text {
		runes, begins = append(runes, r), append(begins, i)
	}
	begins = append(begins, len(text))
	last := -1
	err := e.compiled.FindRunesMatches(runes, 0, func(m regexp2.MatchView) bool {
		if first, n, ok := m.GroupRange(0); ok && (n > 0 || first != last) {
			last = first + n
			give(begins[first], begins[last])
		}
		return true
	})
	if err != nil {
		panic(fmt.Sprintf("bpe: split by %q: %v", e.compiled, err))
	}
}

// chain splits by several splitters in turn, each within the pieces of the splitter before.
type chain []splitter

func (c chain) splitText(text string, piece func(string)) {
	if len(c) == 0 {
		if text != "" {
			piece(text)
		}
		return
	}
	c[0].splitText(text, func(part string) { c[1:].splitText(part, piece) })
}

// digits cuts numbers out, in single digits or in runs, and leaves the rest whole.
type digits struct {
	*classes
	single bool
}

func (d digits) splitText(text string, piece func(string)) {
	done := 0
	for i := 0; i < len(text); {
		_, size := utf8.DecodeRuneInString(text[i:])
		if have, _ := d.classAt(text, i); have != number {
			i += size
			continue
		}
		if i > done {
			piece(text[done:i])
		}
		end := i + size
		if !d.single {
			end = d.runEnd(text, i, number)
		}
		piece(text[i:end])
		i, done = end, end
	}
	if done < len(text) {
		piece(text[done:])
	}
}
