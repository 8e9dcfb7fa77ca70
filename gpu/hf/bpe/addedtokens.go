package bpe

import (
	"fmt"
	"slices"
	"strings"
)

// addedTokens are the tokens that are cut out of a text.
type addedTokens struct {
	list           []AddedToken
	all, blank     matchers
	added, special []bool // by id
	// barred are, by id, the tokens that a stranger's text does not become: all but those of spaces alone.
	barred []bool
	// guarded is true when merges may make a barred token out of plain text.
	guarded bool
}

// matchers find tokens in a text as it is, and those that are looked for in normalized text.
type matchers struct{ raw, late *matcher }

func newMatchers() matchers { return matchers{newMatcher(), newMatcher()} }

// addToken adds a token that is looked for by its text.
func (m *matchers) addToken(token AddedToken, text string) {
	if token.Normalized {
		m.late.addToken(token, text)
	} else {
		m.raw.addToken(token, text)
	}
}

// guards are the tokens that may not be made of text; nil where no merge makes any.
func (a *addedTokens) guards() []bool {
	if !a.guarded {
		return nil
	}
	return a.barred
}

// tokenOf is the added token of an id; nil where it is none.
func (a *addedTokens) tokenOf(id int32) *AddedToken {
	if id < 0 || int(id) >= len(a.added) || !a.added[id] {
		return nil
	}
	i := slices.IndexFunc(a.list, func(t AddedToken) bool { return t.ID == id })
	return &a.list[i]
}

// addTokens adds the added tokens to the vocabulary and to the matchers.
func (t *Tokenizer) addTokens(tokens []AddedToken) error {
	t.tokens = addedTokens{list: tokens, all: newMatchers(), blank: newMatchers()}
	t.ids = map[string]int32{}
	for i, token := range tokens {
		if token.Content == "" {
			return fmt.Errorf("[%d].content: empty", i)
		}
		if _, twice := t.ids[token.Content]; twice {
			return fmt.Errorf("[%d] %q: there twice", i, token.Content)
		}
		t.ids[token.Content] = token.ID
		found := token.Content
		if token.Normalized {
			if found = t.normal.normalizeText(found, false); found == "" {
				return fmt.Errorf("[%d] %q: the normalizer leaves nothing of it", i, token.Content)
			}
		}
		text := t.decoder.tokenText(found, t.vocab.alphabet, true)
		if have, ok := t.vocab.ids[token.Content]; !ok {
			if err := t.vocab.putToken(token.ID, text); err != nil {
				return fmt.Errorf("[%d] %q: %w", i, token.Content, err)
			}
		} else if have != token.ID {
			return fmt.Errorf("[%d] %q: id %d, but model.vocab says %d", i, token.Content, token.ID, have)
		} else {
			t.vocab.texts[have] = text
		}
		t.tokens.all.addToken(token, found)
		if strings.TrimSpace(text) == "" {
			t.tokens.blank.addToken(token, found)
		}
	}
	t.markAddedTokens(tokens)
	t.findFirsts()
	return t.checkSymbols()
}

// markAddedTokens notes which ids are added tokens, and whether merges can make any of them.
func (t *Tokenizer) markAddedTokens(tokens []AddedToken) {
	a, n := &t.tokens, len(t.vocab.texts)
	a.added, a.special, a.barred = make([]bool, n), make([]bool, n), make([]bool, n)
	for _, token := range tokens {
		a.added[token.ID], a.special[token.ID] = true, token.Special
		a.barred[token.ID] = strings.TrimSpace(t.vocab.texts[token.ID]) != ""
	}
	for _, e := range t.vocab.merges.places {
		a.guarded = a.guarded || e.key != free && a.barred[e.id]
	}
	for _, id := range t.vocab.whole {
		a.guarded = a.guarded || a.barred[id]
	}
}

// findFirsts notes the tokens whose text is another at the begin of a whole text.
func (t *Tokenizer) findFirsts() {
	if t.decoder.prefix == 0 {
		return
	}
	t.vocab.firsts = map[int32]string{}
	note := func(token string, id int32) {
		if strings.ContainsRune(token, t.decoder.prefix) {
			t.vocab.firsts[id] = t.decoder.firstText(token, t.vocab.alphabet, t.tokens.added[id])
		}
	}
	for token, id := range t.vocab.ids {
		note(token, id)
	}
	for _, token := range t.tokens.list {
		if text := token.Content; token.Normalized {
			note(t.normal.normalizeText(text, false), token.ID)
		} else {
			note(text, token.ID)
		}
	}
}

// checkSymbols refuses an added token that a single byte or character of any text becomes.
func (t *Tokenizer) checkSymbols() error {
	if t.vocab.symbols == nil {
		for b, id := range t.vocab.single {
			if id != absent && t.tokens.barred[id] {
				return fmt.Errorf("%q is the token of byte 0x%02x, which any text may hold", t.vocab.texts[id], b)
			}
		}
		return nil
	}
	for token, id := range t.vocab.ids {
		_, isByte := byteOf(token)
		single := len([]rune(token)) == 1 || isByte && t.vocab.symbols.fallback
		if single && t.tokens.barred[id] && id != t.vocab.symbols.unknown {
			return fmt.Errorf("%q is the token of a character, which any text may hold", token)
		}
	}
	return nil
}
