// Package posted is the reward that an agent outside gives itself: it posts a number with its answer.
package posted

import (
	"context"
	"maps"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

// Name is the type's in a configuration.
const Name = "posted"

// Config sets the reward of an episode whose agent posted nothing.
type Config struct {
	// Missing is the reward of an episode that ended without a posted reward, such as at a limit. Defaults to 0.
	Missing float64 `koanf:"missing"`
}

// Validate reports every fault.
func (c Config) Validate() error { return check.Finite("missing", c.Missing) }

// Reward is a producers.Reward.
type Reward struct{ cfg Config }

// New makes the reward.
func New(cfg Config) (*Reward, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Reward{cfg}, nil
}

// ComponentPosted is the component, 0 or 1, that reports whether the agent posted a reward.
const ComponentPosted = "posted"

// Score is the agent's posted reward.
func (r *Reward) Score(_ context.Context, _ *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	if t.Posted == nil {
		return producers.Score{Total: r.cfg.Missing, Components: map[string]float64{ComponentPosted: 0}}, nil
	}
	score := producers.Score{Total: t.Posted.Total, Components: map[string]float64{}}
	maps.Copy(score.Components, t.Posted.Components)
	score.Components[ComponentPosted] = 1
	return score, nil
}

// ReadsOfEpisode says that a stored trajectory lacks what the agent posted.
func (r *Reward) ReadsOfEpisode() string { return "the reward that the agent posted" }

// Type is the kind of reward that a configuration names by type: posted.
func Type() rewards.Type { return rewards.NewType(Name, func() Config { return Config{} }, openReward) }

// openReward makes the reward.
func openReward(_ context.Context, cfg Config, o rewards.Opening) (producers.Reward, error) {
	return New(cfg)
}
