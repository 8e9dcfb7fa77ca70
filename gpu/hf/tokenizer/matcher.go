package tokenizer

import (
	"cmp"
	"slices"
	"strings"
)

// matcher finds added tokens in raw text: the leftmost, and the longest of the tokens that start there.
type matcher struct {
	byFirst map[byte][]added // longest first
}

type added struct {
	text string
	id   int32
}

func newMatcher(words []string, special []bool) matcher {
	m := matcher{byFirst: map[byte][]added{}}
	for id, word := range words {
		if special[id] {
			m.byFirst[word[0]] = append(m.byFirst[word[0]], added{word, int32(id)})
		}
	}
	for _, tokens := range m.byFirst {
		slices.SortFunc(tokens, func(a, b added) int { return cmp.Compare(len(b.text), len(a.text)) })
	}
	return m
}

// nextToken returns where the first added token of text starts and ends and its id; without one,
// start = end = len(text) and id = -1.
func (m matcher) nextToken(text string) (start, end int, id int32) {
	for i := range len(text) {
		for _, token := range m.byFirst[text[i]] {
			if strings.HasPrefix(text[i:], token.text) {
				return i, i + len(token.text), token.id
			}
		}
	}
	return len(text), len(text), -1
}
