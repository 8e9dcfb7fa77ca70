package api

import (
	"fmt"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers/agents/notebook"
	"github.com/weir-rl/weir/producers/tasks"
)

// wording are the words of the language that cells and their outputs are written in.
const wording = "( ) , . ? help submit takes the first second and once twice error : other arguments a function undefined cell is in this turn " +
	"there no more than one was cut"

// newTokenizer has each name, material and number as a word. Results are no words: nothing that the policy writes can hold such a word.
func newTokenizer(names []string, further []string) (*tokenizer.Tokenizer, error) {
	words := strings.Fields(wording)
	for i := range numbers {
		words = append(words, fmt.Sprint(i))
	}
	words = append(append(words, materials...), names...)
	for _, text := range further {
		words = append(words, tokenizer.LowerWords(text)...)
	}
	return tokenizer.New(tokenizer.Config{
		Special: append([]string{tasks.TokenPad, tasks.TokenUnknown, tasks.TokenBegin}, notebook.Tags()...),
		Words:   distinctWords(words), Unknown: tasks.TokenUnknown, Lowercase: true,
	})
}

// distinctWords returns each word once.
func distinctWords(words []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, w := range words {
		if !seen[w] {
			seen[w], out = true, append(out, w)
		}
	}
	return out
}
