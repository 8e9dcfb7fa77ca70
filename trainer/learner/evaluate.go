package learner

import (
	"context"
	"errors"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/loss"
)

// evaluation has the outputs for a batch before the step's first update: an entry for each token, 0 at tokens that are neither trained on
// nor credited, except for bootstrap.
type evaluation struct {
	// logprobs are the policy's; nil when nothing reads them, as where the only minibatch gives the same.
	logprobs []float64
	// squares are the sums of the squared probabilities; nil where the estimator does not read them or the engine does not
	// give them.
	squares []float64
	// values are the critic's; nil without a critic.
	values []float64
	// bootstrap, with an entry for each row, is the critic's value of the state after a rollout that was cut off, 0 for the other rows; nil
	// without a critic, or where no row was cut off.
	bootstrap []float64
	// reference are the frozen policy's log-probabilities; nil without a frozen policy.
	reference []float64
	// importance are the loss's weights of tokens that an older policy sampled; nil where the estimator does not read them.
	importance []float64
	// durations multiply the loss by how long an action took; nil when they are off.
	durations []float64
}

// evaluatePolicy runs the batch through the policy, if anything reads the outputs.
func (s *step) evaluatePolicy(ctx context.Context) error {
	if !s.objective.readsStart(s.cfg) {
		return nil
	}
	out := outputs{logprobs: make([]float64, len(s.rows.Tokens))}
	if s.critic.isHead() {
		out.values = make([]float64, len(s.rows.Tokens))
	}
	if s.credit.improvesWith("ProbSquares") {
		out.squares = make([]float64, len(s.rows.Tokens))
	}
	err := evaluateRows(ctx, s.deps.Engine, s.rows, s.rows.All(), s.cfg.MicroTokens, &out)
	s.before.logprobs, s.before.values, s.before.squares = out.logprobs, out.values, out.squares
	return err
}

// evaluateCritic runs the batch through a critic that is a network of its own; a value head's values came with the policy's outputs.
func (s *step) evaluateCritic(ctx context.Context) error {
	if !s.critic.isNetwork() {
		return nil
	}
	s.before.values = make([]float64, len(s.rows.Tokens))
	return evaluateRows(ctx, s.critic.engine, s.rows, s.rows.All(), s.cfg.MicroTokens, &outputs{values: s.before.values})
}

// evaluateReference runs the batch through the frozen policy, if there is one.
func (s *step) evaluateReference(ctx context.Context) error {
	if s.reference == nil {
		return nil
	}
	s.before.reference = make([]float64, len(s.rows.Tokens))
	return evaluateRows(ctx, s.reference, s.rows, s.rows.All(), s.cfg.MicroTokens, &outputs{logprobs: s.before.reference})
}

func (s *step) weighDurations(context.Context) error {
	if s.cfg.Loss.Duration.Share == 0 {
		return nil
	}
	s.before.durations = make([]float64, len(s.rows.Tokens))
	return s.cfg.Loss.Duration.Weights(s.rows.Offsets, s.rows.Mask, s.rows.Seconds, s.before.durations)
}

// completeBehaviour gives the tokens that no policy sampled the policy's own log-probability, so that their ratio begins
// at 1.
func (s *step) completeBehaviour(context.Context) error {
	if s.tools == nil {
		return nil
	}
	if s.before.logprobs == nil { // Validate refuses such a configuration
		return errors.New("mask_tools is off, and the policy at the start of the step is not known")
	}
	behaviour := slices.Clone(s.rows.Behaviour)
	for _, i := range s.tools {
		behaviour[i] = s.before.logprobs[i]
	}
	s.rows = s.rows.WithBehaviour(behaviour)
	return nil
}

func (s *step) measureOffPolicy(context.Context) (err error) {
	if s.before.logprobs == nil {
		return nil
	}
	s.stats.sampler.addTokens(s.before.logprobs, s.rows.Behaviour, s.rows.Mask, s.rows.Versions, s.version)
	s.stats.offPolicy, err = loss.OffPolicy(s.rows.Offsets, s.rows.Mask, s.before.logprobs, s.rows.Behaviour)
	return err
}

// weighImportance computes the loss's weights for an estimator that reads them.
func (s *step) weighImportance(context.Context) error {
	if !s.credit.improvesWith("Weights") || s.objective.correction.Weight == loss.WeightNone {
		return nil
	}
	var c loss.Corrected
	if err := loss.Correct(s.objective.correction, s.rows.Offsets, s.rows.Mask, s.before.logprobs, s.rows.Behaviour, &c); err != nil {
		return err
	}
	s.before.importance = c.Weights
	for i, on := range s.rows.Credit {
		if on != 0 && s.rows.Mask[i] == 0 { // no policy sampled it, and the loss gives it no weight
			c.Weights[i] = 1
		}
	}
	return nil
}

// outputs are an engine's outputs, an entry for each token of the whole batch; a nil array is not filled.
type outputs struct{ logprobs, squares, values []float64 }

// evaluateRows fills the outputs of some rows, in micro-batches of at most budget tokens. squares becomes nil when the engine
// does not give them.
func evaluateRows(ctx context.Context, e gpu.Engine, rows *batch.Rows, of []int, budget int, out *outputs) error {
	micros := batch.Pack(of, rows.Length, limitBudget(budget, e))
	parts := engineBatches(rows, micros)
	for _, b := range parts {
		b.ValuesOnly = out.logprobs == nil
	}
	return e.Evaluate(ctx, parts, func(i int, got *gpu.Outputs) error {
		if out.logprobs != nil {
			batch.Scatter(rows, micros[i], got.Logprobs, out.logprobs)
		}
		if got.ProbSquares == nil {
			out.squares = nil
		}
		if out.squares != nil {
			batch.Scatter(rows, micros[i], got.ProbSquares, out.squares)
		}
		if out.values != nil {
			batch.Scatter(rows, micros[i], got.Values, out.values)
		}
		return nil
	})
}

// engineBatches lays micro-batches out for an engine.
func engineBatches(rows *batch.Rows, micros [][]int) []*gpu.Batch {
	parts := make([]*gpu.Batch, len(micros))
	for i, micro := range micros {
		parts[i] = rows.GPU(micro)
	}
	return parts
}

// limitBudget lowers a budget of tokens to the lowest of the engines' limits.
func limitBudget(budget int, engines ...gpu.Engine) int {
	for _, e := range engines {
		if most := e.Limits().MaxTokens; most > 0 {
			budget = min(budget, most)
		}
	}
	return budget
}
