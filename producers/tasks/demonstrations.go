package tasks

import (
	"errors"
	"fmt"
	"io"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
)

// Written are written-out trajectories for the cold start of a task that has no generator of its own:
// an endless order in which every epoch shows each of them once. Safe for concurrent use.
type Written struct {
	tokens [][]int32
	masks  [][]uint8
	seed   uint64
}

// demonstrationRow is one line of a demonstration file.
type demonstrationRow struct {
	Question string `json:"question"`
	Steps    []struct {
		Search string `json:"search"`
		Info   string `json:"info"`
	} `json:"steps"`
	Answer string `json:"answer"`
}

// LoadDemonstrations reads a demonstration file; see [ReadDemonstrations].
func LoadDemonstrations(path string, tok *tokenizer.Tokenizer, seed uint64) (*Written, error) {
	d, err := open(path, func(name string, r io.Reader) (*Written, error) { return ReadDemonstrations(name, r, tok, seed) })
	if err != nil {
		return nil, fmt.Errorf("load demonstrations: %w", err)
	}
	return d, nil
}

// ReadDemonstrations reads demonstrations, one JSON object a line:
//
//	{"question": "what is the capital of sweden ?", "steps": [{"search": "sweden", "info": "sweden has capital stockholm."}], "answer": "stockholm"}
//
// Steps may be missing. A bad row is refused, naming the file and the line; so is one with a word that the
// tokenizer does not have.
func ReadDemonstrations(name string, r io.Reader, tok *tokenizer.Tokenizer, seed uint64) (*Written, error) {
	d := &Written{seed: seed}
	err := rows(name, r, func(data []byte) error {
		var row demonstrationRow
		if err := decode(data, &row); err != nil {
			return err
		}
		if err := row.check(tok); err != nil {
			return err
		}
		d.add(&row, tok)
		return nil
	})
	if err == nil && len(d.tokens) == 0 {
		err = fmt.Errorf("%s: no demonstration in it", name)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (r *demonstrationRow) check(tok *tokenizer.Tokenizer) error {
	var faults []error
	check := func(key, text string) {
		err := wanted(key, text)
		if err == nil {
			for _, word := range tokenizer.LowerWords(text) {
				if _, known := tok.ID(word); !known {
					err = fmt.Errorf("%s: the vocabulary has no word %q", key, word)
					break
				}
			}
		}
		faults = append(faults, err)
	}
	check("question", r.Question)
	for i, step := range r.Steps {
		check(fmt.Sprintf("steps[%d].search", i), step.Search)
		check(fmt.Sprintf("steps[%d].info", i), step.Info)
	}
	check("answer", r.Answer)
	return errors.Join(faults...)
}

// add writes a row out as the search agent would have recorded it.
func (d *Written) add(row *demonstrationRow, tok *tokenizer.Tokenizer) {
	var tokens []int32
	var mask []uint8
	write := func(acts uint8, open, text, end string) {
		from := len(tokens)
		tokens = tok.Append(tokens, open+" "+text+" "+end)
		for range tokens[from:] {
			mask = append(mask, acts)
		}
	}
	write(0, TokenBegin, row.Question, "")
	for _, step := range row.Steps {
		write(1, TokenSearch, step.Search, TokenSearchEnd)
		write(0, TokenInfo, step.Info, TokenInfoEnd)
	}
	write(1, TokenAnswer, row.Answer, TokenAnswerEnd)
	d.tokens, d.masks = append(d.tokens, tokens), append(d.masks, mask)
}

// Len is how many different demonstrations there are.
func (d *Written) Len() int { return len(d.tokens) }

// Demonstration returns the tokens of the i-th one and a mask with 1 where the agent, not the prompt or the tool,
// wrote the token. The caller must not change them.
func (d *Written) Demonstration(i uint64) (tokens []int32, mask []uint8) {
	n := uint64(len(d.tokens))
	at := permuted(i%n, n, mix(d.seed+i/n))
	return d.tokens[at], d.masks[at]
}

// permuted is the image of i under a permutation of 0..n-1 that key chooses: a Feistel network over the next
// power of four, walked until it lands below n. It needs no memory, so any index of any epoch costs the same.
func permuted(i, n, key uint64) uint64 {
	half := uint(1)
	for uint64(1)<<(2*half) < n {
		half++
	}
	low := uint64(1)<<half - 1
	for {
		left, right := i>>half, i&low
		for round := range uint64(4) {
			left, right = right, left^(mix(right^key+round)&low)
		}
		if i = left<<half | right; i < n {
			return i
		}
	}
}
