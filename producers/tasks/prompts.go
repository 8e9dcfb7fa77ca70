package tasks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/schemas"
)

// Prompts is the endless order in which the questions of a split are asked: cursor 0, 1, 2, ...
//
// Cursors go round the sources in turn, so that any run of consecutive cursors asks of each equally often,
// and each source goes through its questions in a new order every epoch. The prompt at a cursor depends only
// on the questions, the seed and the cursor: a run that starts again goes on where it stopped.
// Safe for concurrent use.
type Prompts struct {
	pools []*pool
}

// Prompts returns the order of a split. It is an error if the split has no question.
func (d *Dataset) Prompts(split Split, seed uint64) (*Prompts, error) {
	pools := groupBySource(d.Questions[split], seed)
	if len(pools) == 0 {
		return nil, fmt.Errorf("data set %s has no question in its %s split", d.Name, split)
	}
	return &Prompts{pools}, nil
}

// Prompt returns the prompt at a cursor.
func (p *Prompts) Prompt(cursor uint64) schemas.Prompt {
	n := uint64(len(p.pools))
	return p.pools[cursor%n].questionAt(cursor / n)
}

// pool is the questions of a source.
type pool struct {
	questions []schemas.Prompt
	seed      uint64
}

// groupBySource groups questions by source, sources sorted.
func groupBySource(questions []schemas.Prompt, seed uint64) []*pool {
	bySource := map[string][]schemas.Prompt{}
	for _, q := range questions {
		bySource[q.Source] = append(bySource[q.Source], q)
	}
	var out []*pool
	for source, questions := range bySource {
		slices.SortFunc(questions, func(a, b schemas.Prompt) int { return strings.Compare(a.ID, b.ID) })
		out = append(out, &pool{questions, Spread(seed ^ Hash(source))})
	}
	slices.SortFunc(out, func(a, b *pool) int { return strings.Compare(a.questions[0].Source, b.questions[0].Source) })
	return out
}

// questionAt returns the question at a turn: every epoch of turns has each question once, in an order of its own.
func (p *pool) questionAt(turn uint64) schemas.Prompt {
	n := uint64(len(p.questions))
	return p.questions[Shuffled(turn, n, p.seed)]
}
