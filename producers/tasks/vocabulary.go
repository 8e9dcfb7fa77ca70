package tasks

import (
	"slices"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
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

// NewTokenizer makes a word-level tokenizer for a data set: the special tokens, then every word of its
// passages, questions and answers and of the further texts, lower-cased and sorted. Further texts are what else
// an agent may be shown, such as a tool's message that nothing was found.
func NewTokenizer(d *Dataset, further ...string) (*tokenizer.Tokenizer, error) {
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
	return tokenizer.New(tokenizer.Config{
		Special: SpecialTokens(), Words: slices.Compact(words), Unknown: TokenUnknown, Lowercase: true,
	})
}
