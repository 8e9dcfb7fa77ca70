package atlas

import (
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers/agents/notebook"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/facts"
)

// wording are the words of the language that cells and their outputs are written in. Numbers are not among it: a code is seen as an unknown
// word.
const wording = `( ) , . : = " * ? ' - the of times capital code neighbour find submit a b struct none error line no such country takes name undefined ` +
	"unknown binary op int string has attribute got want"

// newTokenizer has the words of the countries and their capitals. No code and no product is a word.
func newTokenizer(countries []*facts.Country, further []string) (*tokenizer.Tokenizer, error) {
	words := strings.Fields(wording)
	for _, c := range countries {
		words = append(append(words, tokenizer.LowerWords(c.Name)...), tokenizer.LowerWords(c.Capital)...)
	}
	for _, text := range further {
		words = append(words, tokenizer.LowerWords(text)...)
	}
	slices.Sort(words)
	return tokenizer.New(tokenizer.Config{
		Special: append([]string{tasks.TokenPad, tasks.TokenUnknown, tasks.TokenBegin}, notebook.Tags()...),
		Words:   slices.Compact(words), Unknown: tasks.TokenUnknown, Lowercase: true,
	})
}
