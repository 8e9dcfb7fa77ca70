package data

import (
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/tasks"
)

// Split sets how rows that name no split are divided. A row's place follows from a hash of its question alone, so that adding,
// moving or filtering rows moves no other row.
type Split struct {
	// Validation and Test are shares in a hundred of the rows that name no split; the rest is train. Where rows name splits but none
	// names validation, the share of validation is taken from train, and none is taken for test. Default to 10 and 10.
	Validation float64 `koanf:"validation"`
	Test       float64 `koanf:"test"`
	// Salt makes another division of the same shares. Defaults to "".
	Salt string `koanf:"salt"`
}

// DefaultSplit is 80, 10 and 10 in a hundred.
func DefaultSplit() Split { return Split{Validation: 10, Test: 10} }

// Validate reports every fault.
func (s Split) Validate() error {
	return check.All(
		check.That(s.Validation >= 0 && s.Validation < 100, "validation", "%g: must be at least 0 and below 100", s.Validation),
		check.That(s.Test >= 0 && s.Test < 100, "test", "%g: must be at least 0 and below 100", s.Test),
		check.That(s.Validation+s.Test < 100, "test", "%g: with validation, %g, nothing is left to train on", s.Test, s.Validation),
	)
}

// Divide gives each example its split.
func (s Split) Divide(examples []*Example) {
	named := map[tasks.Split]bool{}
	for _, e := range examples {
		named[e.Split] = true
	}
	carve := named[tasks.Train] && !named[tasks.Validation]
	for _, e := range examples {
		u := s.percentOf(e)
		switch {
		case e.Split == "" && u < s.Test:
			e.Split = tasks.Test
		case e.Split == "" && u < s.Test+s.Validation:
			e.Split = tasks.Validation
		case e.Split == "":
			e.Split = tasks.Train
		case carve && e.Split == tasks.Train && u >= s.Test && u < s.Test+s.Validation:
			e.Split = tasks.Validation
		}
	}
}

// percentOf is a number from 0 to 100 that follows from the question, however it is spelt, or from the group that the row names.
func (s Split) percentOf(e *Example) float64 {
	key := e.Group
	if key == "" {
		key = rewards.Words(e.promptKey())
	}
	if key == "" {
		key = e.promptKey()
	}
	return float64(tasks.Hash(s.Salt+"\x00"+key)>>11) / (1 << 53) * 100
}

// Limit bounds the rows of each split.
type Limit struct {
	// Train, Validation and Test bound the rows of a split, chosen by a hash of their ids: a greater limit keeps the rows that
	// a smaller limit kept. 0 is no bound. Default to 0.
	Train      int `koanf:"train"`
	Validation int `koanf:"validation"`
	Test       int `koanf:"test"`
}

// Validate reports every fault.
func (l Limit) Validate() error {
	return check.All(check.NotNegative("train", l.Train), check.NotNegative("validation", l.Validation), check.NotNegative("test", l.Test))
}

// Keep gives the examples within the limits, in their order.
func (l Limit) Keep(examples []*Example, left *Left) []*Example {
	drop := map[*Example]bool{}
	for split, most := range map[tasks.Split]int{tasks.Train: l.Train, tasks.Validation: l.Validation, tasks.Test: l.Test} {
		var of []*Example
		for _, e := range examples {
			if e.Split == split {
				of = append(of, e)
			}
		}
		if most == 0 || len(of) <= most {
			continue
		}
		slices.SortStableFunc(of, func(a, b *Example) int {
			x, y := tasks.Hash(a.ID), tasks.Hash(b.ID)
			switch {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		})
		for _, e := range of[most:] {
			drop[e] = true
		}
	}
	left.Limited += len(drop)
	return slices.DeleteFunc(examples, func(e *Example) bool { return drop[e] })
}
