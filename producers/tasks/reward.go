package tasks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// RewardConfig weighs the components of the reward for a question.
type RewardConfig struct {
	// ExactMatch weighs 1 for an answer that is one of the accepted ones, else 0.
	ExactMatch float64 `koanf:"exact_match"`
	// Answered weighs 1 for any answer in the right format, else 0.
	Answered float64 `koanf:"answered"`
}

// DefaultRewardConfig is 1 for the right answer and 0.1 for any.
func DefaultRewardConfig() RewardConfig { return RewardConfig{ExactMatch: 1, Answered: 0.1} }

// Validate reports every fault.
func (c RewardConfig) Validate() error {
	var faults []error
	for _, weight := range []struct {
		key   string
		value float64
	}{{"exact_match", c.ExactMatch}, {"answered", c.Answered}} {
		if math.IsNaN(weight.value) || math.IsInf(weight.value, 0) {
			faults = append(faults, fmt.Errorf("%s: %v: must be a number", weight.key, weight.value))
		}
	}
	return errors.Join(faults...)
}

// ComponentAnswered is the reward component for an answer in the right format.
const ComponentAnswered = "answered"

// Reward scores answers by exact match.
type Reward struct{ cfg RewardConfig }

// NewReward makes the reward.
func NewReward(cfg RewardConfig) (*Reward, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("reward: %w", err)
	}
	return &Reward{cfg}, nil
}

// Score compares the answer with the ticket's. Only an episode that stopped with an answer has one.
func (r *Reward) Score(_ context.Context, ticket *schemas.Ticket, transcript *producers.Transcript) (producers.Score, error) {
	var match, answered float64
	if transcript.Stop == schemas.StopAnswer && transcript.Answer != "" {
		answered = 1
		if ExactMatch(transcript.Answer, ticket.Prompt.Answers) {
			match = 1
		}
	}
	return producers.Score{
		Total:      r.cfg.ExactMatch*match + r.cfg.Answered*answered,
		Components: map[string]float64{producers.ComponentExactMatch: match, ComponentAnswered: answered},
	}, nil
}

// ExactMatch says whether an answer has the same words as one of the accepted ones. Words are runs of
// letters and digits, case folded, so punctuation and spacing do not count. An answer without a word
// matches nothing.
func ExactMatch(answer string, accepted []string) bool {
	got := words(answer)
	if got == "" {
		return false
	}
	for _, want := range accepted {
		if got == words(want) {
			return true
		}
	}
	return false
}

func words(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}), " ")
}
