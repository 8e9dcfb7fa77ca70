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

// update takes the optimizer steps of one policy version.
func (s *step) update(ctx context.Context) error {
	began := s.deps.Now()
	defer func() { s.stats.Update = s.deps.Now().Sub(began) }()
	shuffle := rand.New(s.random)
	for epoch := range s.cfg.Epochs {
		parts := s.rows.Minibatches(s.cfg.minibatches(s.rows.Groups), shuffle)
		silenced := s.rows.Len()
		for _, of := range parts {
			silenced -= len(of)
		}
		for k, of := range parts {
			share := silenced*(k+1)/len(parts) - silenced*k/len(parts)
			if err := s.minibatch(of, share).train(ctx); err != nil {
				return fmt.Errorf("epoch %d, minibatch %d: %w", epoch, k, err)
			}
		}
	}
	return s.endWarmup(ctx)
}

// minibatch is some rows of the batch: one optimizer step.
type minibatch struct {
	*step
	of []int
	// micros deal the rows into micro-batches within the token budget.
	micros [][]int
	// counts are the denominators of the loss.
	counts loss.Counts
	// plan is what the loss settles over all rows of the minibatch; nil where the loss looks at single rows alone.
	plan *loss.Plan
}

// minibatch lays out some rows. silenced is how many rows without an action would be among them, had such rows not been
// left out.
func (s *step) minibatch(of []int, silenced int) *minibatch {
	counts := loss.Count(s.rows.PackedOffsets(of), batch.Gather(s.rows, of, s.rows.Mask))
	counts.Empty += silenced
	budget := within(s.cfg.MicroTokens, s.deps.Engine)
	if critic := s.Critic(); critic != nil {
		budget = within(budget, critic)
	}
	return &minibatch{step: s, of: of, micros: batch.Pack(of, s.rows.Length, budget), counts: counts}
}

// train gathers the gradient over the micro-batches and takes one optimizer step: of the policy and, where it is apart,
// of the critic; of the critic alone while it warms up.
//
// Invariant: splitting a minibatch into micro-batches changes nothing but rounding: denominators, and whatever the loss
// chooses or normalizes among tokens, are the minibatch's.
func (m *minibatch) train(ctx context.Context) error {
	if m.critic.apart(m.version) {
		if err := m.accumulateCritic(ctx); err != nil {
			return err
		}
		if err := m.stepCritic(ctx); err != nil {
			return err
		}
	}
	if m.critic.warming(m.version) {
		return nil
	}
	if err := m.settle(ctx); err != nil {
		return inRows(err, m.of)
	}
	if err := m.accumulatePolicy(ctx); err != nil {
		return err
	}
	return m.stepPolicy(ctx)
}

// settle plans what the loss looks at over the whole minibatch, before its micro-batches. What the plan needs of the
// current policy costs one forward pass more, which a minibatch of one micro-batch does not need: its plan is made with
// the pass that trains.
func (m *minibatch) settle(ctx context.Context) error {
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
	m.plan, err = m.planOf(b)
	return err
}

// planOf asks the loss what it settles over the whole minibatch b.
func (m *minibatch) planOf(b *loss.Batch) (*loss.Plan, error) {
	plan, err := m.objective.Plan(b)
	if err != nil {
		return nil, fmt.Errorf("loss %s: %w", m.cfg.Loss.Name, err)
	}
	plan.Counts.Empty += m.counts.Empty // the rows that were left out
	m.stats.losses.Add(plan.Metrics)
	return plan, nil
}

// planFor is the part of the plan that a micro-batch has, whose loss reads b.
func (m *minibatch) planFor(micro []int, b *loss.Batch) (*loss.Plan, error) {
	switch {
	case m.plan != nil:
		at := make([]int, len(micro))
		for i, row := range micro {
			at[i], _ = slices.BinarySearch(m.of, row)
		}
		return m.plan.Part(m.rows.PackedOffsets(m.of), at), nil
	case m.objective.Span() != loss.SpanRow: // the one micro-batch is the whole minibatch
		return m.planOf(b)
	default:
		return nil, nil
	}
}

// accumulatePolicy gathers the policy's gradient over the micro-batches.
func (m *minibatch) accumulatePolicy(ctx context.Context) error {
	return m.deps.Engine.Accumulate(ctx, partsOf(m.rows, m.micros), func(i int, out *gpu.Outputs) (*gpu.Gradients, error) {
		gradients, err := m.gradients(m.micros[i], out)
		return gradients, inRows(err, m.micros[i])
	})
}

// gradients are those of the loss with respect to what the policy's engine put out for some rows.
func (m *minibatch) gradients(of []int, out *gpu.Outputs) (*gpu.Gradients, error) {
	b, err := m.lossBatch(of, widen(out.Logprobs))
	if err != nil {
		return nil, err
	}
	if b.Plan, err = m.planFor(of, b); err != nil {
		return nil, err
	}
	b.Entropies, b.Counts = widen(out.Entropies), m.counts
	if m.critic.head() {
		b.Values = widen(out.Values)
		b.OldValues = batch.Gather(m.rows, of, m.before.values)
		b.Returns = batch.Gather(m.rows, of, m.result.Returns)
	}
	if err := m.objective.Loss(b, &m.loss); err != nil {
		return nil, fmt.Errorf("loss %s: %w", m.cfg.Loss.Name, err)
	}
	if m.before.logprobs == nil && m.stats.OptimizerSteps == 0 { // the policy is still that of the step's start
		m.stats.sampler.add(b.Logprobs, b.Behaviour, b.Mask, batch.Gather(m.rows, of, m.rows.Versions), m.version)
	}
	m.stats.addLoss(b, &m.loss)
	if m.stats.Tokens != nil {
		batch.Scatter(m.rows, of, b.Logprobs, m.stats.Tokens.Last)
	}
	return &gpu.Gradients{Logprobs: narrow(m.loss.Grad), Entropies: narrow(m.loss.GradEntropies), Values: narrow(m.loss.GradValues)}, nil
}

// lossBatch is what the loss reads of some rows, whose current log-probabilities are given where they are known.
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
		b.Proximal = b.Logprobs // the first and only minibatch: the policy is still that of the start
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

func widen(x []float32) []float64 {
	if x == nil {
		return nil
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// narrow is nil, which stands for zeros, when there is nothing.
func narrow(x []float64) []float32 {
	if len(x) == 0 {
		return nil
	}
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
