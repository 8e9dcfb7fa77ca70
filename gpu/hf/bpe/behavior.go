package bpe

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// finder finds matches in a text, in order, none over another.
type finder interface {
	findMatches(text string, give func(begin, end int))
}

// textFinder finds a text.
type textFinder string

func (f textFinder) findMatches(text string, give func(begin, end int)) {
	for at := 0; ; {
		i := strings.Index(text[at:], string(f))
		if i < 0 {
			return
		}
		give(at+i, at+i+len(f))
		at += i + len(f)
	}
}

// runeFinder finds each character of a kind.
type runeFinder func(rune) bool

func (f runeFinder) findMatches(text string, give func(begin, end int)) {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if f(r) {
			give(i, i+size)
		}
		i += size
	}
}

// wordFinder finds runs of word characters, and runs of others that are no spaces: \w+|[^\w\s]+.
type wordFinder struct{}

func (wordFinder) findMatches(text string, give func(begin, end int)) {
	kindOf := func(r rune) int {
		switch {
		case inWord(r):
			return 1
		case unicode.IsSpace(r):
			return 0
		}
		return 2
	}
	begin, kind := 0, 0
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if k := kindOf(r); k != kind {
			if kind != 0 {
				give(begin, i)
			}
			begin, kind = i, k
		}
		i += size
	}
	if kind != 0 {
		give(begin, len(text))
	}
}

// span is a part of a text that is a match, or that lies between matches.
type span struct {
	begin, end int
	match      bool
}

// findSpans are the matches and the parts between them, which cover the text.
func findSpans(find finder, text string, invert bool) []span {
	var spans []span
	done := 0
	find.findMatches(text, func(begin, end int) {
		if begin > done {
			spans = append(spans, span{done, begin, invert})
		}
		spans = append(spans, span{begin, end, !invert})
		done = end
	})
	if done < len(text) {
		spans = append(spans, span{done, len(text), invert})
	}
	return spans
}

// behavior is what becomes of the matches of a Split.
type behavior uint8

const (
	isolate behavior = iota
	removed
	mergedWithPrevious
	mergedWithNext
	contiguous
)

// newBehavior reads a behavior by its name in the file.
func newBehavior(key, name string) (behavior, error) {
	names := []string{"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"}
	i := slices.Index(names, name)
	if i < 0 {
		return 0, refuseUnsupported(key, name, strings.Join(names, ", "))
	}
	return behavior(i), nil
}

// arrangeSpans are the pieces that a behavior makes of the parts of a text, as NormalizedString::split of the library has it.
func (b behavior) arrangeSpans(spans []span) []span {
	switch b {
	case removed:
		return slices.DeleteFunc(spans, func(s span) bool { return s.match })
	case contiguous:
		return foldSpans(spans, func(match, before bool) bool { return match == before })
	case mergedWithPrevious:
		return foldSpans(spans, func(match, before bool) bool { return match && !before })
	case mergedWithNext:
		slices.Reverse(spans)
		spans = foldSpans(spans, func(match, before bool) bool { return match && !before })
		slices.Reverse(spans)
	}
	return spans
}

// foldSpans joins a part to the part before it where joined holds of both, the first of them taken to follow no match.
func foldSpans(spans []span, joined func(match, before bool) bool) []span {
	var out []span
	before := false
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && joined(s.match, before) {
			out[last].begin, out[last].end = min(out[last].begin, s.begin), max(out[last].end, s.end)
		} else {
			out = append(out, s)
		}
		before = s.match
	}
	return out
}
