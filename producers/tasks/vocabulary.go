package tasks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
)

// The special tokens of a task's vocabulary, ids 0, 1, ... in the order of [SpecialTokens].
const (
	TokenPad       = "<pad>"
	TokenUnknown   = "<unk>"
	TokenBegin     = "<bos>"
	TokenSearch    = "<search>"
	TokenSearchEnd = "</search>"
	TokenInfo      = "<info>"
	TokenInfoEnd   = "</info>"
	TokenAnswer    = "<answer>"
	TokenAnswerEnd = "</answer>"
)

// SpecialTokens are the special tokens in order of id.
func SpecialTokens() []string {
	return []string{
		TokenPad, TokenUnknown, TokenBegin, TokenSearch, TokenSearchEnd, TokenInfo, TokenInfoEnd, TokenAnswer, TokenAnswerEnd,
	}
}

// NewTokenizer makes a word-level tokenizer for a data set: the special tokens, then every word of its passages, questions and answers and
// of the further texts, lower-cased and sorted. Further texts are other texts that an agent may be shown, such as a tool's message that
// nothing was found.
func NewTokenizer(d *Dataset, further ...string) (*tokenizer.Tokenizer, error) {
	return newTokenizer(d, nil, further)
}

// newTokenizer has tags behind the special tokens.
func newTokenizer(d *Dataset, tags, further []string) (*tokenizer.Tokenizer, error) {
	special := SpecialTokens()
	for _, tag := range tags {
		if !slices.Contains(special, tag) {
			special = append(special, tag)
		}
	}
	return tokenizer.New(tokenizer.Config{Special: special, Words: vocabularyWords(d, further), Unknown: TokenUnknown, Lowercase: true})
}

// vocabularyWords returns the words of NewTokenizer.
func vocabularyWords(d *Dataset, further []string) []string {
	var words []string
	add := func(text string) { words = append(words, tokenizer.LowerWords(text)...) }
	for _, p := range d.Passages {
		add(p.Text)
	}
	for _, split := range Splits() {
		for _, q := range d.Questions[split] {
			add(q.Text)
			for _, answer := range q.Answers {
				add(answer)
			}
		}
	}
	for _, text := range further {
		add(text)
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// WordTokenizer is the tokenizer of a task whose vocabulary is of words: the tokenizer that it is opened with, or else [NewTokenizer] of
// the data set, the opening's tags and texts and the further texts. A tokenizer from outside that lacks any of their words, or a special
// token, is refused; a tokenizer that is not of words writes every text, and is taken.
func WordTokenizer(o Opening, d *Dataset, further ...string) (Tokenizer, error) {
	further = slices.Concat(further, o.Texts)
	if o.Tokenizer == nil {
		return newTokenizer(d, o.Tags, further)
	}
	if !OfWords(o.Tokenizer) {
		return o.Tokenizer, nil // it writes every text, and an agent asks it for its own tags
	}
	var missing []string
	for _, token := range slices.Concat(SpecialTokens(), o.Tags) {
		if _, ok := o.Tokenizer.ID(token); !ok && token != TokenPad && token != TokenUnknown {
			missing = append(missing, token)
		}
	}
	for _, word := range vocabularyWords(d, further) {
		missing = append(missing, UnknownWords(o.Tokenizer, word)...)
	}
	if n := len(missing); n > 0 {
		return nil, fmt.Errorf("the tokenizer lacks %d of the task's tokens and words, such as %q", n, missing[0])
	}
	return o.Tokenizer, nil
}

// OfWords reports whether a tokenizer's vocabulary is of words, so that there are words which it cannot write.
func OfWords(tok producers.Tokenizer) bool {
	_, ok := tok.(tokenizer.WordLevel)
	return ok
}

// UnknownWords are the words of a text that a tokenizer has no token for, in their order; none for a tokenizer that can write
// every text.
func UnknownWords(tok producers.Tokenizer, text string) []string {
	with, ok := tok.(tokenizer.WordLevel)
	if !ok {
		return nil
	}
	var unknown []string
	for _, word := range tokenizer.Words(text) {
		if slices.Contains(tok.Encode(word), with.Unknown()) {
			unknown = append(unknown, word)
		}
	}
	return unknown
}

// AsQuestion writes a text as the built-in tasks ask: in lower case, with a question mark.
func AsQuestion(text string) string {
	text = strings.TrimSpace(strings.ToLower(text))
	return strings.TrimSpace(strings.TrimSuffix(text, "?")) + " ?"
}
