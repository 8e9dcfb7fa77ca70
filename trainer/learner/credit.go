package learner

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/stats"
)

// credit is the estimator of advantages with what it reads.
type credit struct {
	advantage.Estimator
	facts advantage.Facts
}

// newCredit makes the estimator and checks that trajectories, the policy and the critic carry what it reads.
func newCredit(cfg Config) (*credit, error) {
	e, err := advantage.New(cfg.Advantage.Name, cfg.Advantage.Options, cfg.Advantage.Foreign...)
	if err != nil {
		return nil, err
	}
	c := &credit{Estimator: e, facts: cfg.Advantage.Facts()}
	for _, need := range c.facts.Requires {
		switch need {
		case "Group", "Trajectory", "Step", "Tokens", "Baselines", "Logprobs":
		case "Values": // the configuration was checked for a critic
		default:
			return nil, fmt.Errorf("advantage %s needs %s, which trajectories do not carry", cfg.Advantage.Name, need)
		}
	}
	return c, nil
}

// needs says whether the estimator cannot do without a field of its batch.
func (c *credit) needs(field string) bool { return slices.Contains(c.facts.Requires, field) }

// improves says whether the estimator is better for a field of its batch that it can do without.
func (c *credit) improves(field string) bool { return slices.Contains(c.facts.Improves, field) }

// penalizeRewards subtracts the KL term from the rewards, where it goes there, and adapts its coefficient.
func (s *step) penalizeRewards(context.Context) error {
	rewards := slices.Clone(s.rows.Rewards)
	if _, err := s.objective.PenalizeRewards(s.rows.Offsets, s.rows.Mask, rewards, s.before.logprobs, s.before.reference); err != nil {
		return err
	}
	s.rows = s.rows.WithRewards(rewards)
	return nil
}

func (s *step) estimate(context.Context) error {
	in := &advantage.Batch{
		Offsets: s.rows.Offsets, Mask: s.rows.Mask, Rewards: s.rows.Rewards, Tokens: s.rows.Tokens,
		Group: s.rows.Group, Trajectory: s.rows.Trajectory, Step: s.rows.Step, Baselines: s.rows.Baselines,
		Values: s.before.values, Bootstrap: s.before.bootstrap,
		Logprobs: s.before.logprobs, ProbSquares: s.before.squares, Weights: s.before.importance,
	}
	s.result.AdvantagesOnly = s.before.values == nil
	return s.credit.Estimate(in, &s.result)
}

// normalize shifts and scales the advantages as configured; the critic's targets stay, which may be the same memory.
func (s *step) normalize(context.Context) error {
	n := s.cfg.Advantage.Normalize
	if n.Mean == stats.LevelNone && n.Std == stats.LevelNone {
		return nil
	}
	raw := s.result.Advantages
	s.result.Advantages = make([]float64, len(raw))
	return n.Apply(raw, s.rows.Offsets, s.rows.Mask, s.rows.Group, s.result.Advantages)
}

// explainVariance notes what the critic knew of the returns before the step.
func (s *step) explainVariance(context.Context) error {
	if s.before.values != nil {
		s.stats.explained = new(explainedVariance(s.before.values, s.result.Returns, s.rows.Mask))
	}
	return nil
}

// EstimatorState is that of an estimator that learns from batch to batch.
type EstimatorState struct {
	// Name is the estimator's: another one makes nothing of the state.
	Name  string
	State json.RawMessage
}

// state is what the estimator knows from the batches so far; nil where that is nothing.
func (c *credit) state() (*EstimatorState, error) {
	e, ok := c.Estimator.(advantage.Stateful)
	if !ok {
		return nil, nil
	}
	state, err := e.State()
	if err != nil {
		return nil, fmt.Errorf("save what advantage %s has learnt: %w", e.Name(), err)
	}
	if state == nil {
		return nil, nil
	}
	return &EstimatorState{Name: e.Name(), State: state}, nil
}

// restore gives the estimator what the estimator of the same name knew.
func (c *credit) restore(s *EstimatorState, log *slog.Logger) error {
	if s == nil {
		return nil
	}
	e, ok := c.Estimator.(advantage.Stateful)
	if !ok || s.Name != e.Name() {
		log.Warn("the advantage was changed: what the one before had learnt is forgotten", "before", s.Name, "now", c.Name())
		return nil
	}
	if err := e.Restore(s.State); err != nil {
		return fmt.Errorf("load what advantage %s has learnt: %w", s.Name, err)
	}
	return nil
}
