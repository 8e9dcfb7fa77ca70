package simulated

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
)

// How far distracting passages are looked for: among the best for the query, and then among some that are drawn.
const (
	distractRank  = 64
	distractDraws = 64
)

// corpus shows passages of the task.
type corpus struct {
	cfg      Config
	passages []tasks.Passage
	search   *tools.Search
}

func newCorpus(cfg Config, passages []tasks.Passage) (*corpus, error) {
	if len(passages) == 0 {
		return nil, errors.New("documents: corpus: the task has no passage to show: give it a corpus, or have a model write documents")
	}
	index := tools.DefaultSearchConfig()
	index.TopK = cfg.TopK
	search, err := tools.NewSearch(index, passages)
	if err != nil {
		return nil, err
	}
	return &corpus{cfg, passages, search}, nil
}

// writeDocuments returns the best passages for the query or, where noise is asked for, distracting passages. They are joined by a space, as
// the tool search shows them.
func (c *corpus) writeDocuments(_ context.Context, a asked) (string, error) {
	var texts []string
	if a.noisy {
		texts = c.distractingPassages(a)
	} else {
		for _, p := range c.search.Find(a.query) {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, " "), nil
}

// distractingPassages returns passages that do not hold an answer, and that a useful search would not have shown.
func (c *corpus) distractingPassages(a asked) []string {
	answers := make([]string, len(a.Answers))
	for i, answer := range a.Answers {
		answers[i] = rewards.Words(answer)
	}
	ranked := c.search.Top(a.query, c.cfg.TopK+distractRank)
	var texts []string
	var taken []int
	for rank, p := range ranked {
		taken = append(taken, p.At)
		if rank >= c.cfg.TopK && len(texts) < c.cfg.TopK && !holdsAnswer(p.Text, answers) {
			texts = append(texts, p.Text)
		}
	}
	rng := rand.New(rand.NewPCG(a.seed, 0))
	for range distractDraws {
		if len(texts) == c.cfg.TopK {
			break
		}
		at := rng.IntN(len(c.passages))
		if text := c.passages[at].Text; !slices.Contains(taken, at) && !holdsAnswer(text, answers) {
			texts, taken = append(texts, text), append(taken, at)
		}
	}
	return texts
}

// holdsAnswer reports whether a text has one of the answers, written as [rewards.Words] does, word for word.
func holdsAnswer(text string, answers []string) bool {
	words := " " + rewards.Words(text) + " "
	return slices.ContainsFunc(answers, func(answer string) bool { return answer != "" && strings.Contains(words, " "+answer+" ") })
}
