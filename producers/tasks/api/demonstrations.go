package api

import (
	"fmt"
	"math/rand/v2"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/tasks"
)

// DemoConfig says how the demonstrations of the cold start are made. Their faults are deliberate: they leave something to learn from
// rewards.
type DemoConfig struct {
	// Seed makes other demonstrations of the same kind.
	Seed uint64 `koanf:"seed"`
	// Guess is the share of demonstrations, 0 to 1, that call the function without having looked at help.
	Guess float64 `koanf:"guess"`
	// GiveUp is the share of demonstrations with a failed guess, 0 to 1, that submit 0 then; the others look at help.
	GiveUp float64 `koanf:"give_up"`
	// WrongNested is the share of nested questions, 0 to 1, in which a function is called wrong in spite of help.
	WrongNested float64 `koanf:"wrong_nested"`
}

// DefaultDemoConfig guesses in three cases of five, and then mostly gives up: the most frequent choice, and so the greedy choice, scores
// nothing.
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

// script is the demonstrations before an agent has written them: the i-th is always the same. Each has a world of its own, so that none can
// be remembered and only reading and copying helps.
type script struct {
	cfg   DemoConfig
	names []string
}

// drawQuestion draws the question of a demonstration: in two cases of three a nested question, whose code is harder to copy.
func (s script) drawQuestion(rng *rand.Rand) question {
	return drawQuestion(rng, s.names, rng.IntN(3) > 0)
}

// demonstrationAt returns the i-th demonstration.
func (s script) demonstrationAt(i uint64) tasks.Demonstration {
	rng := rand.New(rand.NewPCG(s.cfg.Seed, i))
	q := s.drawQuestion(rng)
	d := tasks.Demonstration{Question: q.questionText()}
	add := func(cell, output string) { d.Steps = append(d.Steps, tasks.Step{Arguments: cell, Result: output}) }
	if rng.Float64() < s.cfg.Guess {
		inner, outer := drawSignature(rng, q.innerSignature().Name), drawSignature(rng, q.outerSignature().Name)
		cell := submitCall(q.answerCode(inner, outer))
		failed := q.failureText(inner, outer)
		if failed == "" { // the guess was accepted, right or not
			add(cell, "")
			return d
		}
		add(cell, failed)
		if rng.Float64() < s.cfg.GiveUp {
			add(submitCall("0"), "")
			return d
		}
	}
	add(fmt.Sprintf("%s ( %s )", helpName, q.innerSignature().Name), q.innerSignature().helpText())
	inner, outer := q.innerSignature(), q.outerSignature()
	if q.nested {
		add(fmt.Sprintf("%s ( %s )", helpName, outer.Name), outer.helpText())
		if rng.Float64() < s.cfg.WrongNested {
			if rng.IntN(2) == 0 {
				inner = drawSignature(rng, inner.Name)
			} else {
				outer = drawSignature(rng, outer.Name)
			}
		}
	}
	add(submitCall(q.answerCode(inner, outer)), "")
	return d
}

// submitCall returns the cell that submits the value of an expression.
func submitCall(code string) string { return fmt.Sprintf("submit ( %s )", code) }

// failureText returns the output of the cell when the functions are called by these signatures; "" where they take it. An inner function is
// called first.
func (q question) failureText(inner, outer signature) string {
	used := []signature{inner, outer}
	for i, right := range q.world.Functions {
		used := used[i]
		if used.Word != right.Word || used.Twice && !right.Twice {
			return fmt.Sprintf("Error: %s: takes other arguments", right.Name)
		}
	}
	return ""
}
