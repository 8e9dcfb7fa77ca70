package learner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/loss"
)

// updatePolicy takes the optimizer steps of a policy version.
func (s *step) updatePolicy(ctx context.Context) error {
	began := s.deps.Now()
	defer func() { s.stats.Update = s.deps.Now().Sub(began) }()
	shuffle := rand.New(s.random)
	for epoch := range s.cfg.Epochs {
		parts := s.rows.Minibatches(s.cfg.minibatchCount(s.rows.Groups), shuffle)
		silenced := s.rows.Len()
		for _, of := range parts {
			silenced -= len(of)
		}
		for k, of := range parts {
			share := silenced*(k+1)/len(parts) - silenced*k/len(parts)
			if err := s.newMinibatch(of, share).trainMinibatch(ctx); err != nil {
				return fmt.Errorf("epoch %d, minibatch %d: %w", epoch, k, err)
			}
		}
	}
	return s.endWarmup(ctx)
}

// minibatch is some rows of the batch: an optimizer step.
type minibatch struct {
	*step
	of []int
	// micros deal the rows into micro-batches within the token budget.
	micros [][]int
	// counts are the denominators of the loss; valueCounts of the critic's, where it learns at other tokens than the policy.
	counts, valueCounts loss.Counts
	// plan is the loss's plan over all rows of the minibatch; nil where the loss looks at single rows alone.
	plan *loss.Plan
}

// newMinibatch lays out some rows. silenced is the minibatch's share of the rows without an action, which Minibatches leaves out.
func (s *step) newMinibatch(of []int, silenced int) *minibatch {
	m := &minibatch{step: s, of: of}
	m.counts = loss.Count(s.rows.PackedOffsets(of), batch.Gather(s.rows, of, s.rows.Mask))
	m.counts.Empty += silenced
	if s.rows.Credit != nil {
		m.valueCounts = loss.Count(s.rows.PackedOffsets(of), batch.Gather(s.rows, of, s.rows.Credit))
		m.valueCounts.Empty += silenced
	}
	budget := limitBudget(s.cfg.MicroTokens, s.deps.Engine)
	if critic := s.Critic(); critic != nil {
		budget = limitBudget(budget, critic)
	}
	m.micros = batch.Pack(of, s.rows.Length, budget)
	return m
}

// trainMinibatch gathers the gradient over the micro-batches and takes an optimizer step: of the policy and, where it is trained apart, of
// the critic; of the critic alone while it warms up.
//
// Invariant: splitting a minibatch into micro-batches changes nothing but rounding: denominators, and whatever the loss
// chooses or normalizes among tokens, are the minibatch's.
func (m *minibatch) trainMinibatch(ctx context.Context) error {
	if m.critic.isTrainedApart(m.version) {
		if err := m.accumulateCritic(ctx); err != nil {
			return err
		}
		if err := m.stepCritic(ctx); err != nil {
			return err
		}
	}
	if m.critic.isWarmingUp(m.version) {
		return nil
	}
	if err := m.planLoss(ctx); err != nil {
		return inBatchRows(err, m.of)
	}
	if err := m.accumulatePolicy(ctx); err != nil {
		return err
	}
	return m.stepPolicy(ctx)
}

// planLoss plans the parts of the loss that span the whole minibatch, before its micro-batches. A plan that needs the current policy costs
// a further forward pass, except in a minibatch of a single micro-batch: its plan is made with the pass that trains.
func (m *minibatch) planLoss(ctx context.Context) error {
	span := m.objective.Span()
	if span == loss.SpanRow || len(m.micros) == 1 {
		return nil
	}
	var now []float64
	if span == loss.SpanCurrent || m.before.logprobs == nil || m.cfg.Proximal != ProximalRecompute {
		now = make([]float64, len(m.rows.Tokens))
		if err := evaluateRows(ctx, m.deps.Engine, m.rows, m.of, m.cfg.MicroTokens, &outputs{logprobs: now}); err != nil {
			return fmt.Errorf("log-probabilities of the whole minibatch: %w", err)
		}
	}
	b, err := m.lossBatch(m.of, batch.Gather(m.rows, m.of, now))
	if err != nil {
		return err
	}
	m.plan, err = m.planWhole(b)
	return err
}

// planWhole asks the loss for its plan of the whole minibatch b.
func (m *minibatch) planWhole(b *loss.Batch) (*loss.Plan, error) {
	plan, err := m.objective.Plan(b)
	if err != nil {
		return nil, fmt.Errorf("loss %s: %w", m.cfg.Loss.Name, err)
	}
	plan.Counts.Empty += m.counts.Empty // the rows without an action
	m.stats.losses.Add(plan.Metrics)
	return plan, nil
}

// planPart returns a micro-batch's part of the plan; the loss of the micro-batch reads b.
func (m *minibatch) planPart(micro []int, b *loss.Batch) (*loss.Plan, error) {
	switch {
	case m.plan != nil:
		at := make([]int, len(micro))
		for i, row := range micro {
			at[i], _ = slices.BinarySearch(m.of, row)
		}
		return m.plan.Part(m.rows.PackedOffsets(m.of), at), nil
	case m.objective.Span() != loss.SpanRow: // the only micro-batch is the whole minibatch
		return m.planWhole(b)
	default:
		return nil, nil
	}
}

// accumulatePolicy gathers the policy's gradient over the micro-batches.
func (m *minibatch) accumulatePolicy(ctx context.Context) error {
	return m.deps.Engine.Accumulate(ctx, engineBatches(m.rows, m.micros), func(i int, out *gpu.Outputs) (*gpu.Gradients, error) {
		gradients, err := m.lossGradients(m.micros[i], out)
		return gradients, inBatchRows(err, m.micros[i])
	})
}

// lossGradients returns the gradients of the loss with respect to the engine's outputs for some rows.
func (m *minibatch) lossGradients(of []int, out *gpu.Outputs) (*gpu.Gradients, error) {
	b, err := m.lossBatch(of, toFloat64(out.Logprobs))
	if err != nil {
		return nil, err
	}
	if b.Plan, err = m.planPart(of, b); err != nil {
		return nil, err
	}
	b.Entropies, b.Counts = toFloat64(out.Entropies), m.counts
	if m.critic.isHead() {
		b.Values = toFloat64(out.Values)
		b.OldValues = batch.Gather(m.rows, of, m.before.values)
		b.Returns = batch.Gather(m.rows, of, m.result.Returns)
		b.ValueMask, b.ValueCounts = batch.Gather(m.rows, of, m.rows.Credit), m.valueCounts
	}
	if err := m.objective.Loss(b, &m.loss); err != nil {
		return nil, fmt.Errorf("loss %s: %w", m.cfg.Loss.Name, err)
	}
	if m.before.logprobs == nil && m.stats.OptimizerSteps == 0 { // the policy has not changed since the step's start
		m.stats.sampler.addTokens(b.Logprobs, b.Behaviour, b.Mask, batch.Gather(m.rows, of, m.rows.Versions), m.version)
	}
	m.stats.addLoss(b, &m.loss)
	if m.stats.Tokens != nil {
		batch.Scatter(m.rows, of, b.Logprobs, m.stats.Tokens.Last)
	}
	return &gpu.Gradients{Logprobs: toFloat32(m.loss.Grad), Entropies: toFloat32(m.loss.GradEntropies), Values: toFloat32(m.loss.GradValues)}, nil
}

// lossBatch is the loss's input of some rows; logprobs are their current log-probabilities, nil where not known.
func (s *step) lossBatch(of []int, logprobs []float64) (*loss.Batch, error) {
	b := &loss.Batch{
		Offsets: s.rows.PackedOffsets(of), Mask: batch.Gather(s.rows, of, s.rows.Mask), Logprobs: logprobs,
		Proximal: batch.Gather(s.rows, of, s.before.logprobs), Behaviour: batch.Gather(s.rows, of, s.rows.Behaviour),
		Advantages: batch.Gather(s.rows, of, s.result.Advantages), Reference: batch.Gather(s.rows, of, s.before.reference),
		Weights: batch.Gather(s.rows, of, s.before.durations),
	}
	switch {
	case s.cfg.Proximal != ProximalRecompute:
		b.Proximal = make([]float64, len(b.Mask))
		versions := batch.Gather(s.rows, of, s.rows.Versions)
		if err := loss.Approximate(s.cfg.Proximal, s.version+1, versions, b.Logprobs, b.Behaviour, b.Proximal); err != nil {
			return nil, fmt.Errorf("approximate the proximal policy: %w", err)
		}
	case b.Proximal == nil && s.objective.proximal:
		b.Proximal = b.Logprobs // the only minibatch: the policy has not changed since the start
	}
	return b, nil
}

// stepPolicy is the policy's optimizer step.
func (m *minibatch) stepPolicy(ctx context.Context) error {
	options := m.policyOptions()
	done, err := m.deps.Engine.Step(ctx, options)
	if err != nil {
		return fmt.Errorf("optimizer step: %w", err)
	}
	m.stats.addStep(options, done)
	if done.Skipped {
		m.deps.Log.Warn("optimizer step skipped: the gradient is not finite", "step", m.version+1)
	}
	return nil
}

func toFloat64(x []float32) []float64 {
	if x == nil {
		return nil
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// toFloat32 returns nil, which stands for zeros, for an empty x.
func toFloat32(x []float64) []float32 {
	if len(x) == 0 {
		return nil
	}
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
