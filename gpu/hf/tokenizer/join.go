package tokenizer

import (
	"errors"
	"fmt"
	"slices"
)

// Join makes a word-level tokenizer of the vocabularies of several: the special tokens in the order in which they first come,
// then all words, sorted. Text that any of them can write, the new tokenizer can write too, with other ids.
//
// Errors: no tokenizers, or tokenizers that differ in the token for unknown words or in whether they fold case.
func Join(parts ...*Tokenizer) (*Tokenizer, error) {
	if len(parts) == 0 {
		return nil, errors.New("join tokenizers: there is none")
	}
	cfg := Config{Unknown: parts[0].words[parts[0].unknown], Lowercase: parts[0].lowercase}
	special := map[string]bool{}
	for _, t := range parts {
		if t.words[t.unknown] != cfg.Unknown || t.lowercase != cfg.Lowercase {
			return nil, fmt.Errorf("join tokenizers: %q stands for unknown words in one and %q in another, and they fold case: %t and %t: want the same",
				cfg.Unknown, t.words[t.unknown], cfg.Lowercase, t.lowercase)
		}
		for id, word := range t.words {
			if t.special[id] && !special[word] {
				special[word] = true
				cfg.Special = append(cfg.Special, word)
			}
		}
	}
	for _, t := range parts {
		for _, word := range t.words {
			if !special[word] {
				cfg.Words = append(cfg.Words, word)
			}
		}
	}
	slices.Sort(cfg.Words)
	cfg.Words = slices.Compact(cfg.Words)
	return New(cfg)
}
