package math

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/data"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

// ComponentFormat is 1 where the answer stands where the reward looks for it.
const ComponentFormat = "format"

// The places in which an answer is looked for.
const (
	// ExtractAuto takes the last \boxed{}, else the text after the last ####, else the text after the last "answer is" or "Answer:", else
	// the whole.
	ExtractAuto = "auto"
	// ExtractBoxed takes the last \boxed{} alone.
	ExtractBoxed = "boxed"
	// ExtractWhole takes the whole.
	ExtractWhole = "whole"
)

// Config sets the reward of an answer.
type Config struct {
	// Correct and Wrong are the rewards for an accepted answer and for any other; an episode without an answer is wrong. Default to 1 and
	// 0.
	Correct float64 `koanf:"correct"`
	Wrong   float64 `koanf:"wrong"`
	// Format is added where the answer stands where it is looked for. Defaults to 0.
	Format float64 `koanf:"format"`
	// Extract says where the answer stands in what the agent gives: boxed, the last \boxed{}; whole, all of it; auto, the last \boxed{},
	// else after ####, else after "answer is" or "Answer:", else all of it. Defaults to auto.
	Extract string `koanf:"extract"`
	// Loose takes every expression of the right value: 17*23 where 391 is accepted. Defaults to false.
	Loose bool `koanf:"loose"`
}

// DefaultConfig is 1 for a right answer.
func DefaultConfig() Config { return Config{Correct: 1, Extract: ExtractAuto} }

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Finite("correct", c.Correct), check.Finite("wrong", c.Wrong), check.Finite("format", c.Format),
		check.That(c.Correct > c.Wrong, "correct", "%g: must be above wrong, %g", c.Correct, c.Wrong),
		check.OneOf("extract", c.Extract, ExtractAuto, ExtractBoxed, ExtractWhole),
	)
}

var after = regexp.MustCompile(`(?i)(?:answer is|answer\s*:|####)\s*:?`)

// extractAnswer returns the answer in a text; ok is false where there is none.
func (c Config) extractAnswer(text string) (answer string, ok bool) {
	if c.Extract != ExtractWhole {
		if boxed, ok := data.LastBoxed(text); ok || c.Extract == ExtractBoxed {
			return boxed, ok && strings.TrimSpace(boxed) != ""
		}
		if at := after.FindAllStringIndex(text, -1); len(at) > 0 {
			text = text[at[len(at)-1][1]:]
			text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
		}
	}
	return text, strings.TrimSpace(text) != ""
}

// Reward compares the agent's answer with the accepted ones.
type Reward struct{ cfg Config }

// New makes the reward.
func New(cfg Config) (*Reward, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Reward{cfg}, nil
}

// Score is that of the answer: an episode that did not end with one has none.
func (r *Reward) Score(_ context.Context, ticket *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	given, ok := "", false
	if t.Stop == schemas.StopAnswer {
		given, ok = r.cfg.extractAnswer(t.Answer)
	}
	return newScore(r.cfg.Correct, r.cfg.Wrong, r.cfg.Format, ok, ok && isAccepted(ticket, func(a string) bool { return Options{Loose: r.cfg.Loose}.Equal(given, a) })), nil
}

// Ballot is the answer in a text.
func (r *Reward) Ballot(text string) string {
	answer, ok := r.cfg.extractAnswer(text)
	if !ok {
		return ""
	}
	return strings.TrimSpace(answer)
}

// Same reports whether each would be right where the other is accepted: 1/2, 0.5 and \frac12 are the same answer, and 17*23 is none of 391,
// unless loose takes it.
func (r *Reward) Same(a, b string) bool {
	o := Options{Loose: r.cfg.Loose}
	return len(a) <= maxAnswer && len(b) <= maxAnswer && o.Equal(a, b) && o.Equal(b, a)
}

// isAccepted reports whether an accepted answer of the ticket is the same.
func isAccepted(ticket *schemas.Ticket, same func(string) bool) bool {
	return slices.ContainsFunc(ticket.Prompt.Answers, same)
}

// newScore returns the score of an answer that is there, right or wrong.
func newScore(correct, wrong, format float64, there, right bool) producers.Score {
	out := producers.Score{Total: wrong, Components: map[string]float64{producers.ComponentExactMatch: 0, ComponentFormat: 0}}
	if right {
		out.Total, out.Components[producers.ComponentExactMatch] = correct, 1
	}
	if there {
		out.Total += format
		out.Components[ComponentFormat] = 1
	}
	return out
}

// Type is the reward math.
func Type() rewards.Type { return rewards.NewType("math", DefaultConfig, openReward) }

// openReward makes the reward.
func openReward(_ context.Context, cfg Config, o rewards.Opening) (producers.Reward, error) {
	return New(cfg)
}
