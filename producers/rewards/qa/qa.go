// Package qa is the reward for short answers: exact match and F1 of words, normalised as SQuAD's.
package qa

import (
	"context"
	"maps"
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

// ComponentF1 and ComponentAnswered are components beside exact_match.
const (
	ComponentF1       = "f1"
	ComponentAnswered = "answered"
)

// Config weighs the components.
type Config struct {
	// ExactMatch weighs 1 for an accepted answer, else 0. F1 weighs the words that it shares with the nearest of them, Answered any answer.
	// Default to 1, 0 and 0.
	ExactMatch float64 `koanf:"exact_match"`
	F1         float64 `koanf:"f1"`
	Answered   float64 `koanf:"answered"`
	// Normalizer brings spellings together: squad, words or alphanumeric. Defaults to squad.
	Normalizer string `koanf:"normalizer"`
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Finite("exact_match", c.ExactMatch), check.Finite("f1", c.F1), check.Finite("answered", c.Answered),
		check.OneOf("normalizer", c.Normalizer, slices.Sorted(maps.Keys(rewards.Normalizers()))...),
	)
}

// Reward scores an answer; all three components are reported, whatever they weigh.
type Reward struct{ cfg Config }

// Score compares the answer with the accepted ones. An answer of which nothing is left when it is normalised matches nothing.
func (r *Reward) Score(_ context.Context, ticket *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	normalize := rewards.Normalizers()[r.cfg.Normalizer]
	c := map[string]float64{producers.ComponentExactMatch: 0, ComponentF1: 0, ComponentAnswered: 0}
	if t.Stop == schemas.StopAnswer && normalize(t.Answer) != "" {
		c[producers.ComponentExactMatch] = rewards.ExactMatch(normalize, t.Answer, ticket.Prompt.Answers)
		c[ComponentF1] = rewards.F1(normalize, t.Answer, ticket.Prompt.Answers, false)
		c[ComponentAnswered] = 1
	}
	total := r.cfg.ExactMatch*c[producers.ComponentExactMatch] + r.cfg.F1*c[ComponentF1] + r.cfg.Answered*c[ComponentAnswered]
	return producers.Score{Total: total, Components: c}, nil
}

// Ballot is the answer, normalised.
func (r *Reward) Ballot(answer string) string { return rewards.Normalizers()[r.cfg.Normalizer](answer) }

// Same is false: equal spellings are normalised before.
func (r *Reward) Same(_, _ string) bool { return false }

// Type is the reward qa.
func Type() rewards.Type {
	return rewards.NewType("qa", func() Config { return Config{ExactMatch: 1, Normalizer: "squad"} }, openReward)
}

// openReward makes the reward.
func openReward(_ context.Context, cfg Config, o rewards.Opening) (producers.Reward, error) {
	return &Reward{cfg}, cfg.Validate()
}
