package tasks

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// Split names a part of a data set by its use.
type Split string

// The splits.
const (
	// Train is the part that the policy learns from.
	Train Split = "train"
	// Validation is for choosing: hyperparameters, when to stop, which checkpoint to keep.
	Validation Split = "validation"
	// Test is touched only to report.
	Test Split = "test"
)

// Splits are all splits, in order.
func Splits() []Split { return []Split{Train, Validation, Test} }

// Passage is a document of a corpus.
type Passage struct {
	// Title names the subject of the passage; a search for exactly the title finds it.
	Title string `json:"title"`
	// Text is the text that the agent is shown.
	Text string `json:"text"`
}

// Dataset is the questions of a task, and the corpus that they are asked about, if any. It is not changed after it is made.
type Dataset struct {
	Name     string
	Passages []Passage
	// Questions of each split. Prompt.Source names the kind of question.
	Questions map[Split][]schemas.Prompt
}

// Validate reports every fault of the data set: no training question, a question without text, id or answer (a question with hidden data
// for its reward needs no answer), an id that two questions share (in whichever splits).
func (d *Dataset) Validate() error {
	var faults []error
	if len(d.Questions[Train]) == 0 {
		faults = append(faults, errors.New("the train split has no question"))
	}
	seen := map[string]Split{}
	for _, split := range Splits() {
		for i, q := range d.Questions[split] {
			switch {
			case q.ID == "" || q.Text == "":
				faults = append(faults, fmt.Errorf("%s question %d has no id or no text", split, i))
			case len(q.Answers) == 0 && q.Hidden == nil, slices.Contains(q.Answers, ""):
				faults = append(faults, fmt.Errorf("%s question %q has no answer or an empty one", split, q.ID))
			}
			if other, twice := seen[q.ID]; twice {
				faults = append(faults, fmt.Errorf("question id %q is there twice, in %s and %s", q.ID, other, split))
			}
			seen[q.ID] = split
		}
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("data set %s: %w", d.Name, err)
	}
	return nil
}

// Sources are the kinds of question of a split, sorted.
func (d *Dataset) Sources(split Split) []string {
	var sources []string
	for _, q := range d.Questions[split] {
		if !slices.Contains(sources, q.Source) {
			sources = append(sources, q.Source)
		}
	}
	slices.Sort(sources)
	return sources
}

// Sample returns up to n questions of a split, as many of every source as of any other where the split has enough (a small source gives all
// it has), in an order that interleaves the sources. The same arguments give the same sample, and a smaller n gives a prefix of the sample
// of a greater n.
func (d *Dataset) Sample(split Split, n int, seed uint64) []schemas.Prompt {
	pools := groupBySource(d.Questions[split], seed)
	var sample []schemas.Prompt
	for round := 0; len(sample) < n; round++ {
		before := len(sample)
		for _, pool := range pools {
			if round < len(pool.questions) && len(sample) < n {
				sample = append(sample, pool.questionAt(uint64(round)))
			}
		}
		if len(sample) == before {
			break
		}
	}
	return sample
}
