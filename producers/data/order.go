package data

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/internal/turns"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// The orders of a source's questions.
const (
	// OrderShuffled asks each question once an epoch, in an order of the epoch's own.
	OrderShuffled = "shuffled"
	// OrderFile asks them as the files have them.
	OrderFile = "file"
	// OrderEasyFirst asks the first epoch from the easiest to the hardest, and shuffles the later epochs.
	OrderEasyFirst = "easy_first"
	// OrderWidening draws from the easiest share of the questions, which grows to all of them, and shuffles from then on.
	OrderWidening = "widening"
	// OrderPassRate draws each question in proportion to p(1-p) of its pass rate p.
	OrderPassRate = "pass_rate"
)

// Orders are all of them.
func Orders() []string {
	return []string{OrderShuffled, OrderFile, OrderEasyFirst, OrderWidening, OrderPassRate}
}

// maxWeight bounds the weight of a source, so that the order of a period fits in memory.
const maxWeight = 10_000

// Order sets the order in which the train split is asked.
type Order struct {
	// Mode is shuffled, file, easy_first, widening or pass_rate. Defaults to shuffled.
	Mode string `koanf:"mode"`
	// By is the measure of a question's difficulty for easy_first and widening: difficulty, the column of that role, or
	// pass_rate, where the lowest is the hardest. Defaults to difficulty.
	By string `koanf:"by"`
	// Start is the share of a source's questions that widening begins with, and Prompts after how many prompts of that source it has
	// come to all of them. Default to 0.2 and 1000.
	Start   float64 `koanf:"start"`
	Prompts int     `koanf:"prompts"`
	// Floor is the least weight of a question in the order pass_rate. A pass rate of a half weighs 0.25, and so does a question
	// without a measured rate. Defaults to 0.02.
	Floor float64 `koanf:"floor"`
	// Mix is how sources share the prompts: equal asks each as often as any other, rows by its number of questions. Weights come
	// before it. Defaults to equal.
	Mix string `koanf:"mix"`
	// Weights give sources their share of the prompts relative to one another, whole numbers up to 10000. With weights a source
	// that is not named weighs 1, and a source that weighs 0 is never trained on. Defaults to none.
	Weights map[string]int `koanf:"weights"`
}

// DefaultOrder is shuffled, each source as often as any other.
func DefaultOrder() Order {
	return Order{Mode: OrderShuffled, By: roleDifficulty, Start: 0.2, Prompts: 1000, Floor: 0.02, Mix: "equal"}
}

// Validate reports every fault.
func (o Order) Validate() error {
	var weights []error
	for _, source := range slices.Sorted(maps.Keys(o.Weights)) {
		w := o.Weights[source]
		weights = append(weights, check.That(w >= 0 && w <= maxWeight, "weights."+source, "%d: must be between 0 and %d", w, maxWeight))
	}
	return check.All(
		check.OneOf("mode", o.Mode, Orders()...),
		check.OneOf("by", o.By, roleDifficulty, rolePassRate),
		check.That(o.Start > 0 && o.Start <= 1, "start", "%g: must be above 0 and at most 1", o.Start),
		check.Positive("prompts", o.Prompts),
		check.That(o.Floor > 0 && o.Floor <= 1, "floor", "%g: must be above 0 and at most 1", o.Floor),
		check.OneOf("mix", o.Mix, "equal", "rows"),
		errors.Join(weights...),
	)
}

// queue is the endless order of a source's questions.
type queue struct {
	source    string
	questions []schemas.Prompt
	at        func(turn uint64) uint64
}

// sequence is the order of all sources: a period of turns, over and over.
type sequence struct {
	queues []queue
	period []turns.Turn
	each   []uint64
}

// Prompt is the prompt at a cursor. Invariant: it depends only on the questions, the settings, the seed and the cursor.
func (s *sequence) Prompt(cursor uint64) schemas.Prompt {
	n := uint64(len(s.period))
	at := s.period[cursor%n]
	q := s.queues[at.Of]
	return q.questions[q.at(cursor/n*s.each[at.Of]+at.Before)]
}

// Arrange is the order of the examples of the train split.
func (o Order) Arrange(examples []*Example, seed uint64) (tasks.Order, error) {
	bySource := map[string][]*Example{}
	for _, e := range examples {
		if e.Split == tasks.Train {
			bySource[e.Source] = append(bySource[e.Source], e)
		}
	}
	if err := o.checkSources(bySource); err != nil {
		return nil, err
	}
	if len(o.Weights) == 0 && o.Mix == "rows" {
		var all []*Example
		for _, e := range examples {
			if e.Split == tasks.Train {
				all = append(all, e)
			}
		}
		bySource = map[string][]*Example{"": all}
	}
	s := &sequence{}
	var weights []int
	for _, source := range slices.Sorted(maps.Keys(bySource)) {
		weight := 1
		if w, ok := o.Weights[source]; ok {
			weight = w
		}
		if weight == 0 {
			continue
		}
		q, err := o.newQueue(source, bySource[source], tasks.Spread(seed^tasks.Hash(source)))
		if err != nil {
			return nil, err
		}
		s.queues, weights = append(s.queues, q), append(weights, weight)
	}
	if len(s.queues) == 0 {
		return nil, errors.New("order.weights: no source of the train split has a weight")
	}
	s.period, s.each = turns.Arrange(weights)
	return s, nil
}

// checkSources refuses weights of sources that there are not.
func (o Order) checkSources(bySource map[string][]*Example) error {
	for _, source := range slices.Sorted(maps.Keys(o.Weights)) {
		if bySource[source] == nil {
			return fmt.Errorf("order.weights.%s: no row of the train split has this source: there are %s", source,
				strings.Join(slices.Sorted(maps.Keys(bySource)), ", "))
		}
	}
	return nil
}

// newQueue is the order of a source's questions.
func (o Order) newQueue(source string, examples []*Example, seed uint64) (queue, error) {
	sorted := slices.Clone(examples)
	n := uint64(len(sorted))
	shuffled := func(turn uint64) uint64 { return tasks.Shuffled(turn, n, seed) }
	byID := func(a, b *Example) int { return strings.Compare(a.ID, b.ID) }
	q := queue{source: source, at: shuffled}
	switch o.Mode {
	case OrderFile:
		q.at = func(turn uint64) uint64 { return turn % n }
	case OrderShuffled:
		slices.SortFunc(sorted, byID) // moving rows changes nothing
	case OrderEasyFirst, OrderWidening:
		if err := o.sortByDifficulty(sorted); err != nil {
			return q, err
		}
		q.at = o.easyFirst(n, seed, shuffled)
	case OrderPassRate:
		slices.SortFunc(sorted, byID)
		q.at = o.drawnByWeight(sorted, seed)
	}
	for _, e := range sorted {
		q.questions = append(q.questions, e.Prompt)
	}
	return q, nil
}

// sortByDifficulty puts the easiest first; among equals the question with the smaller hash.
func (o Order) sortByDifficulty(examples []*Example) error {
	hard := func(e *Example) *float64 {
		if o.By == rolePassRate && e.PassRate != nil {
			x := 1 - *e.PassRate
			return &x
		}
		if o.By == rolePassRate {
			return nil
		}
		return e.Difficulty
	}
	for _, e := range examples {
		if hard(e) == nil {
			return fmt.Errorf("order.mode %s: %s has no %s: name its column by columns.%s, measure it by weir eval --samples, or leave such rows out", o.Mode, e.Where(), o.By, o.By)
		}
	}
	slices.SortFunc(examples, func(a, b *Example) int {
		x, y := *hard(a), *hard(b)
		if x == y {
			x, y = float64(tasks.Hash(a.ID)>>11), float64(tasks.Hash(b.ID)>>11)
		}
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return strings.Compare(a.ID, b.ID)
	})
	return nil
}

// easyFirst is the order of questions that are sorted.
func (o Order) easyFirst(n, seed uint64, shuffled func(uint64) uint64) func(uint64) uint64 {
	if o.Mode == OrderEasyFirst {
		return func(turn uint64) uint64 {
			if turn < n {
				return turn
			}
			return shuffled(turn)
		}
	}
	last := uint64(o.Prompts)
	return func(turn uint64) uint64 {
		if turn >= last {
			return shuffled(turn - last)
		}
		share := o.Start + (1-o.Start)*float64(turn)/float64(last)
		window := min(n, max(1, uint64(math.Ceil(share*float64(n)))))
		return tasks.Spread(seed^(turn+1)) % window
	}
}

// drawnByWeight is the order in which each turn draws anew, by weight.
func (o Order) drawnByWeight(examples []*Example, seed uint64) func(uint64) uint64 {
	sums := make([]float64, len(examples))
	total := 0.0
	for i, e := range examples {
		p := 0.5
		if e.PassRate != nil {
			p = *e.PassRate
		}
		total += max(o.Floor, p*(1-p))
		sums[i] = total
	}
	return func(turn uint64) uint64 {
		u := float64(tasks.Spread(seed^(turn+1))>>11) / (1 << 53) * total
		return uint64(min(sort.SearchFloat64s(sums, math.Nextafter(u, math.Inf(1))), len(sums)-1))
	}
}
