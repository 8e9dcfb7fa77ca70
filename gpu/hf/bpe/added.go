package bpe

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// matcher finds added tokens in a text: the leftmost, and the longest of the tokens that begin there.
type matcher struct {
	tokens []AddedToken
	// nodes are a trie of the tokens' texts.
	nodes []node
	// first are the bytes that a token begins with. only is the byte if there is a single one, else -1.
	first [256]bool
	only  int
}

type node struct {
	next  map[byte]int32
	token int32 // of tokens; -1 where none ends
}

func newMatcher() *matcher { return &matcher{nodes: []node{{token: -1}}} }

// addToken adds a token that is looked for by its text.
func (m *matcher) addToken(token AddedToken, text string) {
	at := int32(0)
	for i := range len(text) {
		n := &m.nodes[at]
		next, ok := n.next[text[i]]
		if !ok {
			next = int32(len(m.nodes))
			if n.next == nil {
				n.next = map[byte]int32{}
			}
			n.next[text[i]] = next
			m.nodes = append(m.nodes, node{token: -1})
		}
		at = next
	}
	m.nodes[at].token = int32(len(m.tokens))
	m.tokens = append(m.tokens, token)
	switch {
	case len(m.tokens) == 1:
		m.only = int(text[0])
	case m.only != int(text[0]):
		m.only = -1
	}
	m.first[text[0]] = true
}

// findToken is the first token from a place on, its begin and its end; nil without a token.
func (m *matcher) findToken(text string, from int) (token *AddedToken, begin, end int) {
	for i := from; i < len(text); i++ {
		if m.only >= 0 {
			skip := strings.IndexByte(text[i:], byte(m.only))
			if skip < 0 {
				break
			}
			i += skip
		} else if !m.first[text[i]] {
			continue
		}
		at := int32(0)
		for k := i; k < len(text); k++ {
			next, ok := m.nodes[at].next[text[k]]
			if !ok {
				break
			}
			if at = next; m.nodes[at].token >= 0 {
				token, end = &m.tokens[m.nodes[at].token], k+1
			}
		}
		if token != nil {
			return token, i, end
		}
	}
	return nil, len(text), len(text)
}

// cutText calls plain for the text between tokens, where there is any, and found for each token, in order.
func (m *matcher) cutText(text string, plain func(string), found func(id int32)) {
	if len(m.tokens) == 0 {
		if text != "" {
			plain(text)
		}
		return
	}
	done, from := 0, 0
	for {
		token, begin, end := m.findToken(text, from)
		if token == nil {
			break
		}
		from = end
		if token.SingleWord && (endsWithWord(text[:begin]) || startsWithWord(text[end:])) {
			continue
		}
		if token.LStrip {
			begin = max(done, len(strings.TrimRightFunc(text[:begin], unicode.IsSpace)))
		}
		if token.RStrip {
			// A token that begins in these spaces is still found, as the library finds it.
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if begin > done {
			plain(text[done:begin])
		}
		found(token.ID)
		done = end
	}
	if done < len(text) {
		plain(text[done:])
	}
}

func startsWithWord(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return text != "" && inWord(r)
}

func endsWithWord(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return text != "" && inWord(r)
}

// inWord is \w as Unicode's technical standard 18 has it.
func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.In(r, unicode.Nd, unicode.Nl, unicode.M, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}
