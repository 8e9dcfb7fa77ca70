package learner

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/batch"
)

// creditAssigner is the estimator of advantages with its facts.
type creditAssigner struct {
	advantage.Estimator
	facts advantage.Facts
}

// newCredit makes the estimator and checks that trajectories, the policy and the critic have the fields that it reads.
func newCredit(cfg Config) (*creditAssigner, error) {
	e, err := cfg.Advantage.New()
	if err != nil {
		return nil, err
	}
	c := &creditAssigner{Estimator: e, facts: cfg.Advantage.Facts()}
	for _, need := range c.facts.Requires {
		switch need {
		case "Group", "Trajectory", "Step", "Tokens", "Agent", "Episode", "Baselines", "Logprobs", "StateValues":
		case "Values": // the configuration was checked for a critic
		default:
			return nil, fmt.Errorf("advantage %s needs %s, which trajectories do not carry", cfg.Advantage.Name, need)
		}
	}
	return c, nil
}

// needsField reports whether the estimator cannot do without a field of its batch.
func (c *creditAssigner) needsField(field string) bool {
	return slices.Contains(c.facts.Requires, field)
}

// improvesWith reports whether the estimator is better with a field of its batch that it can do without.
func (c *creditAssigner) improvesWith(field string) bool {
	return slices.Contains(c.facts.Improves, field)
}

// penalizeRewards subtracts the KL term from the rewards, if the KL term goes into the rewards, and adapts its coefficient.
func (s *step) penalizeRewards(context.Context) error {
	rewards := slices.Clone(s.rows.Rewards)
	_, err := s.objective.PenalizeRewards(
		s.rows.Offsets, s.rows.Mask, s.rows.Trajectory, rewards, s.before.logprobs, s.before.reference)
	if err != nil {
		return err
	}
	s.rows = s.rows.WithRewards(rewards)
	return nil
}

// estimateAdvantages has the estimator compare parts: trajectories or, where trajectories have rewards of single agents, each agent's
// segments in them.
func (s *step) estimateAdvantages(context.Context) error {
	in := &advantage.Batch{
		Offsets: s.rows.Offsets, Mask: s.rows.CreditMask(), Rewards: s.rows.Rewards, Tokens: s.rows.Tokens,
		Group: s.rows.PartGroup, Trajectory: s.rows.Part, Step: s.rows.Step, Baselines: s.rows.Baselines,
		Agent: s.rows.Agent, Role: s.rows.Role, Episode: s.rows.Trajectory,
		Values: s.before.values, StateValues: s.rows.StateValues, Bootstrap: s.before.bootstrap,
		Logprobs: s.before.logprobs, ProbSquares: s.before.squares, Weights: s.before.importance,
	}
	s.result.AdvantagesOnly = s.before.values == nil
	enough := s.withPeers()
	if len(enough) == s.rows.Len() {
		return s.credit.Estimate(in, &s.result)
	}
	return s.estimateSome(in, enough)
}

// withPeers are the rows without the rows of an agent that has fewer parts in its group than the estimator needs: min_group counts
// trajectories, and an agent need not take part in all of them.
func (s *step) withPeers() []int {
	return slices.DeleteFunc(s.rows.All(), func(row int) bool {
		n := s.rows.Peers[row]
		return n > 0 && n < s.credit.facts.LeastGroup
	})
}

// estimateSome estimates some rows of a batch; the others get advantage 0, and 0 as the critic's target.
func (s *step) estimateSome(in *advantage.Batch, of []int) error {
	r := s.rows
	got := advantage.Result{AdvantagesOnly: s.result.AdvantagesOnly}
	if len(of) > 0 {
		some := &advantage.Batch{
			Offsets: r.PackedOffsets(of), Mask: batch.Gather(r, of, in.Mask), Rewards: batch.Gather(r, of, in.Rewards), Tokens: batch.Gather(r, of, in.Tokens),
			Group: batch.Pick(of, in.Group), Trajectory: batch.Pick(of, in.Trajectory), Step: batch.Pick(of, in.Step),
			Agent: batch.Pick(of, in.Agent), Role: batch.Pick(of, in.Role), Episode: batch.Pick(of, in.Episode),
			Values: batch.Gather(r, of, in.Values), StateValues: batch.Gather(r, of, in.StateValues), Logprobs: batch.Gather(r, of, in.Logprobs),
			ProbSquares: batch.Gather(r, of, in.ProbSquares), Weights: batch.Gather(r, of, in.Weights),
		}
		if in.Baselines != nil {
			some.Baselines = batch.Pick(of, in.Baselines)
		}
		if in.Bootstrap != nil {
			some.Bootstrap = batch.Pick(of, in.Bootstrap)
		}
		if err := s.credit.Estimate(some, &got); err != nil {
			return inBatchRows(err, of)
		}
	}
	s.result.Advantages = make([]float64, len(in.Mask))
	batch.Scatter(r, of, got.Advantages, s.result.Advantages)
	if s.result.Returns = nil; !s.result.AdvantagesOnly {
		s.result.Returns = make([]float64, len(in.Mask))
		if got.Returns != nil {
			batch.Scatter(r, of, got.Returns, s.result.Returns)
		}
	}
	return nil
}

// normalizeAdvantages shifts and scales the advantages as configured; the critic's targets, which may be the same memory, stay.
func (s *step) normalizeAdvantages(context.Context) error {
	n := s.cfg.Advantage.Normalize
	if !s.cfg.Advantage.normalizes() {
		return nil
	}
	raw := s.result.Advantages
	s.result.Advantages = make([]float64, len(raw))
	return n.Apply(raw, s.rows.Offsets, s.rows.CreditMask(), s.rows.PartGroup, s.rows.Part, s.result.Advantages)
}

// explainVariance notes how much of the returns' variance the critic explained before the step.
func (s *step) explainVariance(context.Context) error {
	if s.before.values != nil {
		s.stats.explained = new(explainedVariance(s.before.values, s.result.Returns, s.rows.CreditMask()))
	}
	return nil
}

// EstimatorState is the state of an estimator that learns from batch to batch.
type EstimatorState struct {
	// Name is the estimator's name: another estimator cannot use the state.
	Name  string
	State json.RawMessage
}

// saveState returns the estimator's state from the batches so far; nil where it has none.
func (c *creditAssigner) saveState() (*EstimatorState, error) {
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

// restoreState gives the estimator the state of an estimator of the same name.
func (c *creditAssigner) restoreState(s *EstimatorState, log *slog.Logger) error {
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
