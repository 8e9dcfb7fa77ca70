package tasks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

// RewardConfig weighs the components of the reward for a question.
type RewardConfig struct {
	// ExactMatch weighs 1 for an answer that is one of the accepted ones, else 0.
	ExactMatch float64 `koanf:"exact_match"`
	// SubstringMatch weighs 1 for an answer that holds one of the accepted ones, else 0; F1 the share of words that
	// it has in common with the nearest of them, 0 to 1. Both default to 0, which does not compute them.
	SubstringMatch float64 `koanf:"substring_match"`
	F1             float64 `koanf:"f1"`
	// Answered weighs 1 for any answer in the right format, else 0.
	Answered float64 `koanf:"answered"`
	// Normalizer brings spellings together before they are compared: words, squad or alphanumeric. Defaults to
	// "words".
	Normalizer string `koanf:"normalizer"`
}

// DefaultRewardConfig is 1 for the right answer and 0.1 for any.
func DefaultRewardConfig() RewardConfig {
	return RewardConfig{ExactMatch: 1, Answered: 0.1, Normalizer: "words"}
}

// Validate reports every fault.
func (c RewardConfig) Validate() error {
	var faults []error
	for _, weight := range []struct {
		key   string
		value float64
	}{{"exact_match", c.ExactMatch}, {"substring_match", c.SubstringMatch}, {"f1", c.F1}, {"answered", c.Answered}} {
		if math.IsNaN(weight.value) || math.IsInf(weight.value, 0) {
			faults = append(faults, fmt.Errorf("%s: %v: must be a number", weight.key, weight.value))
		}
	}
	if _, ok := rewards.Normalizers()[c.Normalizer]; !ok {
		names := strings.Join(slices.Sorted(maps.Keys(rewards.Normalizers())), ", ")
		faults = append(faults, fmt.Errorf("normalizer: %q: want one of %s", c.Normalizer, names))
	}
	return errors.Join(faults...)
}

// The reward components beside producers.ComponentExactMatch.
const (
	ComponentAnswered       = "answered"
	ComponentSubstringMatch = "substring_match"
	ComponentF1             = "f1"
)

// Reward scores answers against the accepted ones.
type Reward struct {
	weights   map[string]float64
	normalize rewards.Normalizer
}

// NewReward makes the reward.
func NewReward(cfg RewardConfig) (*Reward, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("reward: %w", err)
	}
	weights := map[string]float64{producers.ComponentExactMatch: cfg.ExactMatch, ComponentAnswered: cfg.Answered}
	for name, weight := range map[string]float64{ComponentSubstringMatch: cfg.SubstringMatch, ComponentF1: cfg.F1} {
		if weight != 0 {
			weights[name] = weight
		}
	}
	return &Reward{weights, rewards.Normalizers()[cfg.Normalizer]}, nil
}

// Score compares the answer with the ticket's. Only an episode that stopped with an answer has one, and an answer that
// normalises to nothing matches nothing.
func (r *Reward) Score(_ context.Context, ticket *schemas.Ticket, transcript *producers.Transcript) (producers.Score, error) {
	components := make(map[string]float64, len(r.weights))
	for name := range r.weights {
		components[name] = 0
	}
	answer, accepted := transcript.Answer, ticket.Prompt.Answers
	if transcript.Stop == schemas.StopAnswer && answer != "" {
		components[ComponentAnswered] = 1
		if r.normalize(answer) != "" {
			r.compare(components, answer, accepted)
		}
	}
	total, err := rewards.Sum(r.weights, components)
	return producers.Score{Total: total, Components: components}, err
}

func (r *Reward) compare(components map[string]float64, answer string, accepted []string) {
	components[producers.ComponentExactMatch] = rewards.ExactMatch(r.normalize, answer, accepted)
	if _, wanted := r.weights[ComponentSubstringMatch]; wanted {
		components[ComponentSubstringMatch] = rewards.SubstringMatch(r.normalize, answer, accepted)
	}
	if _, wanted := r.weights[ComponentF1]; wanted {
		components[ComponentF1] = rewards.F1(r.normalize, answer, accepted, false)
	}
}
