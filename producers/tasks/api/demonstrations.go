package api

import (
	"fmt"
	"math/rand/v2"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/tasks"
)

// DemoConfig says how the demonstrations of the cold start are made. Their faults are deliberate: they leave something to learn from rewards.
type DemoConfig struct {
	// Seed makes other demonstrations of the same kind.
	Seed uint64 `koanf:"seed"`
	// Guess is the share of demonstrations, 0 to 1, that call the function without having looked at help.
	Guess float64 `koanf:"guess"`
	// GiveUp is the share of those whose guess fails, 0 to 1, that submit 0 then; the others look at help.
	GiveUp float64 `koanf:"give_up"`
	// WrongNested is the share of nested questions, 0 to 1, in which one of the functions is called wrong in spite of help.
	WrongNested float64 `koanf:"wrong_nested"`
}

// DefaultDemoConfig guesses in three cases of five, and then mostly gives up: what is done most often, and so greedily, scores nothing.
func DefaultDemoConfig() DemoConfig {
	return DemoConfig{Seed: 1, Guess: 0.6, GiveUp: 0.7, WrongNested: 0.4}
}

// Validate reports every fault.
func (c DemoConfig) Validate() error {
	return check.All(
		check.Between("guess", c.Guess, 0, 1),
		check.Between("give_up", c.GiveUp, 0, 1),
		check.Between("wrong_nested", c.WrongNested, 0, 1),
	)
}

// script is the demonstrations before an agent has written them: the i-th is always the same. Each has a world of its own, so that none can be
// remembered and only reading and copying helps.
type script struct {
	cfg   DemoConfig
	names []string
}

// asked draws what a demonstration answers: in two cases of three a nested question, whose code is harder to copy.
func (s script) asked(rng *rand.Rand) question { return ask(rng, s.names, rng.IntN(3) > 0) }

// made is the i-th demonstration.
func (s script) made(i uint64) tasks.Demonstration {
	rng := rand.New(rand.NewPCG(s.cfg.Seed, i))
	q := s.asked(rng)
	d := tasks.Demonstration{Question: q.text()}
	add := func(cell, output string) { d.Steps = append(d.Steps, tasks.Step{Arguments: cell, Result: output}) }
	if rng.Float64() < s.cfg.Guess {
		inner, outer := draw(rng, q.inner().Name), draw(rng, q.outer().Name)
		cell := submit(q.code(inner, outer))
		failed := q.fails(inner, outer)
		if failed == "" { // the guess was accepted, right or not
			add(cell, "")
			return d
		}
		add(cell, failed)
		if rng.Float64() < s.cfg.GiveUp {
			add(submit("0"), "")
			return d
		}
	}
	add(fmt.Sprintf("%s ( %s )", helpName, q.inner().Name), q.inner().help())
	inner, outer := q.inner(), q.outer()
	if q.nested {
		add(fmt.Sprintf("%s ( %s )", helpName, outer.Name), outer.help())
		if rng.Float64() < s.cfg.WrongNested {
			if rng.IntN(2) == 0 {
				inner = draw(rng, inner.Name)
			} else {
				outer = draw(rng, outer.Name)
			}
		}
	}
	add(submit(q.code(inner, outer)), "")
	return d
}

func submit(code string) string { return fmt.Sprintf("submit ( %s )", code) }

// fails is what the cell shows when the functions are called by these signatures; "" where they take it. An inner function is called first.
func (q question) fails(inner, outer signature) string {
	used := []signature{inner, outer}
	for i, right := range q.world.Functions {
		used := used[i]
		if used.Word != right.Word || used.Twice && !right.Twice {
			return fmt.Sprintf("Error: %s: takes other arguments", right.Name)
		}
	}
	return ""
}
