// Package team is the reward of a planner and its workers: the planner gets the episode's reward of type weighted, and each worker the
// same, or that only for an answer.
package team

import (
	"context"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/team"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/rewards/weighted"
	"github.com/weir-rl/weir/schemas"
)

// Name is the type's in a configuration.
const Name = "team"

// The rewards of a worker.
const (
	ByOutcome = "outcome"
	ByAnswer  = "answered"
)

// ComponentWorkers is the component beside the components of weighted: the share of the workers that gave the planner an answer, 0 without
// workers.
const ComponentWorkers = "workers_answered"

// Config sets the rewards of the planner and the workers.
type Config struct {
	// Worker is the reward of each worker: outcome, the episode's reward, together with the planner; answered, the episode's reward where
	// the worker gave the planner an answer, else 0, each apart (agent_rewards), so that an estimator compares workers with workers.
	// Defaults to outcome.
	Worker string `koanf:"worker"`
	// Config sets the reward of the episode.
	weighted.Config `koanf:",squash"`
}

// DefaultConfig pays everyone the outcome.
func DefaultConfig() Config { return Config{Worker: ByOutcome, Config: weighted.DefaultConfig()} }

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(check.OneOf("worker", c.Worker, ByOutcome, ByAnswer), c.Config.Validate())
}

// Reward is a producers.Reward.
type Reward struct {
	cfg     Config
	outcome *weighted.Reward
}

// New makes the reward.
func New(cfg Config) (*Reward, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	outcome, err := weighted.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	return &Reward{cfg, outcome}, nil
}

// ReadsOfEpisode says that a stored trajectory lacks the answers of single agents.
func (r *Reward) ReadsOfEpisode() string { return "the answers of the workers" }

// Score returns the score of weighted, with a reward for each agent where workers are paid apart.
func (r *Reward) Score(ctx context.Context, ticket *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	score, err := r.outcome.Score(ctx, ticket, t)
	if err != nil {
		return producers.Score{}, err
	}
	answered := map[string]bool{}
	right := 0.0
	for _, c := range t.Contexts { // a worker's may have several segments
		if schemas.Role(c.Agent) != team.WorkerRole {
			continue
		}
		if c.Answer != "" && !answered[c.Agent] {
			right++
		}
		answered[c.Agent] = answered[c.Agent] || c.Answer != ""
	}
	if score.Components == nil {
		score.Components = map[string]float64{}
	}
	score.Components[ComponentWorkers] = 0
	if len(answered) == 0 {
		return score, nil
	}
	score.Components[ComponentWorkers] = right / float64(len(answered))
	if r.cfg.Worker == ByAnswer {
		score.Agents = map[string]float64{team.PlannerName: score.Total}
		for name, did := range answered {
			score.Agents[name] = 0
			if did {
				score.Agents[name] = score.Total
			}
		}
	}
	return score, nil
}

// Type is the kind of reward that a configuration names by type: team.
func Type() rewards.Type { return rewards.NewType(Name, DefaultConfig, openReward) }

// openReward makes the reward. Weights for a source that no question is of are refused.
func openReward(ctx context.Context, cfg Config, o rewards.Opening) (producers.Reward, error) {
	o.Config = &cfg.Config
	if _, err := weighted.Type().Open(ctx, o); err != nil {
		return nil, err
	}
	return New(cfg)
}
