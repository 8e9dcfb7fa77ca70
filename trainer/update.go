package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/stats"
)

// oldPolicy is the policy at the start of the step: one entry a token of the batch, 0 where the mask is 0.
type oldPolicy struct {
	// logprobs is nil when the current policy's of the one and only minibatch are the same.
	logprobs []float64
	// squares are the sums of the squared probabilities, importance how the loss weighs what an older policy sampled; nil
	// where the advantage does not read them, the engine does not give them or the loss does not weigh.
	squares, importance []float64
	// values are the critic's; nil without one.
	values []float64
	// bootstrap is the critic's value of what follows a row, 0 where that is nothing, one entry a row; nil without a
	// critic, or where none is asked for.
	bootstrap []float64
	// reference is the frozen policy's; nil without one.
	reference []float64
	// weights multiply the loss by how long an action took; nil when they are off.
	weights []float64
}

// chooseLoss makes the objective and finds out what it needs of the start of the step.
func (t *trainer) chooseLoss() (err error) {
	if t.objective, err = loss.NewObjective(t.cfg.Loss); err != nil {
		return fmt.Errorf("loss: %w", err)
	}
	o, err := loss.Resolve(t.cfg.Loss.Name, t.cfg.Loss.Options)
	if err != nil {
		return fmt.Errorf("loss: %w", err)
	}
	t.correction = o.Correction
	t.proximal = o.Old != loss.OldBehaviour || t.objective.Corrects() && o.Correction.Of != loss.OfCurrent
	if t.objective.NeedsReference() && t.deps.NewEngine == nil {
		return errors.New("loss: the KL term needs a reference policy, and there is no engine for it")
	}
	t.proximal = t.proximal && t.cfg.Proximal == ProximalRecompute
	return nil
}

// oldPolicy runs the batch through the policy, and through the reference, as they are at the start of the step.
func (t *trainer) oldPolicy(ctx context.Context, rows *batch.Rows) (*oldPolicy, error) {
	began := t.deps.Now()
	defer func() { t.now.old = t.deps.Now().Sub(began) }()
	old := &oldPolicy{}
	head := t.cfg.Critic.Network == CriticHead
	if t.critic != nil {
		old.values = make([]float64, len(rows.Tokens))
	}
	penalized := t.cfg.Loss.KL.Coef > 0 && t.cfg.Loss.KL.In == loss.KLInReward
	if t.proximal && t.cfg.Minibatches*t.cfg.Epochs > 1 || head || penalized || t.needLogprobs {
		old.logprobs = make([]float64, len(rows.Tokens))
		of := evaluated{logprobs: old.logprobs}
		if head {
			of.values = old.values
		}
		if t.reads("ProbSquares") {
			of.squares = make([]float64, len(rows.Tokens))
		}
		if err := t.evaluate(ctx, t.deps.Engine, rows, rows.All(), &of); err != nil {
			return nil, fmt.Errorf("log-probabilities of the old policy: %w", err)
		}
		old.squares = of.squares
	}
	if t.critic != nil && !head {
		if err := t.evaluate(ctx, t.critic, rows, rows.All(), &evaluated{values: old.values}); err != nil {
			return nil, fmt.Errorf("values of the critic: %w", err)
		}
	}
	if t.reference != nil {
		old.reference = make([]float64, len(rows.Tokens))
		if err := t.evaluate(ctx, t.reference, rows, rows.All(), &evaluated{logprobs: old.reference}); err != nil {
			return nil, fmt.Errorf("log-probabilities of the reference policy: %w", err)
		}
	}
	var err error
	if old.bootstrap, err = t.bootstrap(ctx, rows); err != nil {
		return nil, fmt.Errorf("value of what follows a rollout that was cut off: %w", err)
	}
	if t.cfg.Loss.Duration.Share > 0 {
		old.weights = make([]float64, len(rows.Tokens))
		if err := t.cfg.Loss.Duration.Weights(rows.Offsets, rows.Mask, rows.Seconds, old.weights); err != nil {
			return nil, fmt.Errorf("weigh actions by duration: %w", err)
		}
	}
	if t.toolTokens != nil {
		if old.logprobs == nil {
			return nil, errors.New("mask_tools is off: the loss must know the policy at the start of the step; set minibatches above 1 with a PPO loss")
		}
		for _, i := range t.toolTokens {
			rows.Behaviour[i] = old.logprobs[i] // nothing sampled them: their ratio starts at 1
		}
	}
	if old.logprobs != nil {
		if t.now.offPolicy, err = loss.OffPolicy(rows.Offsets, rows.Mask, old.logprobs, rows.Behaviour); err != nil {
			return nil, fmt.Errorf("measure how far sampling and training are apart: %w", err)
		}
	}
	if t.reads("Weights") && t.correction.Weight != loss.WeightNone {
		var c loss.Corrected
		if err := loss.Correct(t.correction, rows.Offsets, rows.Mask, old.logprobs, rows.Behaviour, &c); err != nil {
			return nil, fmt.Errorf("weigh what an older policy sampled: %w", err)
		}
		old.importance = c.Weights
	}
	return old, nil
}

// evaluated are an engine's outputs, one entry a token.
type evaluated struct{ logprobs, squares, values []float64 }

// evaluate fills those outputs of some rows that are not nil. squares becomes so when the engine does not give them.
func (t *trainer) evaluate(ctx context.Context, e gpu.Engine, rows *batch.Rows, of []int, into *evaluated) error {
	for _, micro := range batch.Pack(of, rows.Length, t.cfg.MicroTokens) {
		in := rows.GPU(micro)
		in.ValuesOnly = into.logprobs == nil
		out, err := e.Forward(ctx, in, false)
		if err != nil {
			return err
		}
		if into.logprobs != nil {
			batch.Scatter(rows, micro, out.Logprobs, into.logprobs)
		}
		if out.ProbSquares == nil {
			into.squares = nil
		}
		if into.squares != nil {
			batch.Scatter(rows, micro, out.ProbSquares, into.squares)
		}
		if into.values != nil {
			batch.Scatter(rows, micro, out.Values, into.values)
		}
	}
	return nil
}

// advantages are estimated once for the whole batch, after the KL term where it goes into the rewards.
func (t *trainer) advantages(rows *batch.Rows, old *oldPolicy) (*advantage.Result, error) {
	if _, err := t.objective.PenalizeRewards(rows.Offsets, rows.Mask, rows.Rewards, old.logprobs, old.reference); err != nil {
		return nil, fmt.Errorf("penalize rewards by KL: %w", err)
	}
	in := &advantage.Batch{
		Offsets: rows.Offsets, Mask: rows.Mask, Rewards: rows.Rewards,
		Group: rows.Group, Trajectory: rows.Trajectory, Step: rows.Step,
		Values: old.values, Bootstrap: old.bootstrap, Baselines: rows.Baselines, Tokens: rows.Tokens,
		Logprobs: old.logprobs, ProbSquares: old.squares, Weights: old.importance,
	}
	out := &advantage.Result{AdvantagesOnly: old.values == nil}
	if err := t.estimator.Estimate(in, out); err != nil {
		return nil, fmt.Errorf("estimate advantages by %s: %w", t.estimator.Name(), err)
	}
	if n := t.cfg.Advantage.Normalize; n.Mean != stats.LevelNone || n.Std != stats.LevelNone {
		raw := out.Advantages
		out.Advantages = make([]float64, len(raw)) // the critic's targets may be the same memory
		if err := n.Apply(raw, rows.Offsets, rows.Mask, rows.Group, out.Advantages); err != nil {
			return nil, fmt.Errorf("normalize advantages: %w", err)
		}
	}
	if old.values != nil {
		t.now.explained = new(explainedVariance(old.values, out.Returns, rows.Mask))
	}
	return out, nil
}

// update takes the optimizer steps of one policy version.
func (t *trainer) update(ctx context.Context, rows *batch.Rows, old *oldPolicy, adv *advantage.Result) error {
	began := t.deps.Now()
	defer func() { t.now.update = t.deps.Now().Sub(began) }()
	shuffle := rand.New(t.random)
	for epoch := range t.cfg.Epochs {
		parts := rows.Minibatches(t.cfg.minibatches(rows.Groups), shuffle)
		silenced := rows.Len()
		for _, rowsOf := range parts {
			silenced -= len(rowsOf)
		}
		for k, rowsOf := range parts {
			share := silenced*(k+1)/len(parts) - silenced*k/len(parts)
			if err := t.minibatch(ctx, rows, rowsOf, share, old, adv); err != nil {
				return fmt.Errorf("epoch %d, minibatch %d: %w", epoch, k, err)
			}
		}
	}
	return t.endWarmup(ctx)
}

// minibatch gathers the gradient over micro-batches and takes one optimizer step, of the policy and of a critic that is
// apart, or of the critic alone while it warms up.
//
// silenced is how many rows without an action would be in it, had they not been left out.
//
// Invariant: splitting a minibatch into micro-batches changes nothing but rounding: denominators, and whatever the loss
// chooses or normalizes among tokens, are the minibatch's.
func (t *trainer) minibatch(ctx context.Context, rows *batch.Rows, of []int, silenced int, old *oldPolicy, adv *advantage.Result) error {
	counts := loss.Count(rows.Lay(of), batch.Gather(rows, of, rows.Mask))
	counts.Empty += silenced
	warming, apart := t.cfg.Critic.warming(t.step), t.cfg.Critic.apart(t.step)
	micros := batch.Pack(of, rows.Length, t.cfg.MicroTokens)
	var plan *loss.Plan
	if !warming && len(micros) > 1 {
		var err error
		if plan, err = t.settle(ctx, rows, of, counts, old, adv); err != nil {
			return inRows(err, of)
		}
	}
	for _, micro := range micros {
		if apart {
			if err := t.criticMicro(ctx, rows, micro, counts, old, adv); err != nil {
				return inRows(err, micro)
			}
		}
		if warming {
			continue
		}
		if err := t.micro(ctx, rows, micro, counts, partOf(plan, rows, of, micro), old, adv); err != nil {
			return inRows(err, micro)
		}
	}
	if apart {
		if err := t.criticStep(ctx); err != nil {
			return err
		}
	}
	if warming {
		return nil
	}
	options := t.policyOptions()
	stats, err := t.deps.Engine.Step(ctx, options)
	if err != nil {
		return fmt.Errorf("optimizer step: %w", err)
	}
	t.now.stepped(options, stats)
	if stats.Skipped {
		t.deps.Log.Warn("optimizer step skipped: the gradient is not finite", "step", t.step+1)
	}
	return nil
}

// settle is what the loss settles over a minibatch before its micro-batches; nil where it looks at single rows alone. What
// it needs of the current policy costs one forward pass more.
func (t *trainer) settle(ctx context.Context, rows *batch.Rows, of []int, counts loss.Counts, old *oldPolicy, adv *advantage.Result) (*loss.Plan, error) {
	span := t.objective.Span()
	if span == loss.SpanRow {
		return nil, nil
	}
	var now []float64
	if span == loss.SpanCurrent || old.logprobs == nil || t.cfg.Proximal != ProximalRecompute {
		now = make([]float64, len(rows.Tokens))
		if err := t.evaluate(ctx, t.deps.Engine, rows, of, &evaluated{logprobs: now}); err != nil {
			return nil, fmt.Errorf("log-probabilities of the whole minibatch: %w", err)
		}
	}
	b, err := t.lossBatch(rows, of, batch.Gather(rows, of, now), old, adv)
	if err != nil {
		return nil, err
	}
	return t.planOf(b, counts)
}

// planOf asks the loss what it settles over the whole minibatch b.
func (t *trainer) planOf(b *loss.Batch, counts loss.Counts) (*loss.Plan, error) {
	plan, err := t.objective.Plan(b)
	if err != nil {
		return nil, fmt.Errorf("loss %s: %w", t.cfg.Loss.Name, err)
	}
	plan.Counts.Empty += counts.Empty // the rows that were left out
	t.now.losses.Add(plan.Metrics)
	return plan, nil
}

// partOf is a micro-batch's part of the plan of the minibatch of.
func partOf(plan *loss.Plan, rows *batch.Rows, of, micro []int) *loss.Plan {
	if plan == nil {
		return nil
	}
	at := make([]int, len(micro))
	for i, row := range micro {
		at[i], _ = slices.BinarySearch(of, row)
	}
	return plan.Part(rows.Lay(of), at)
}

// lossBatch is what the loss reads of some rows, whose current log-probabilities are given where they are known.
func (t *trainer) lossBatch(rows *batch.Rows, of []int, logprobs []float64, old *oldPolicy, adv *advantage.Result) (*loss.Batch, error) {
	b := &loss.Batch{
		Offsets: rows.Lay(of), Mask: batch.Gather(rows, of, rows.Mask), Logprobs: logprobs,
		Proximal: batch.Gather(rows, of, old.logprobs), Behaviour: batch.Gather(rows, of, rows.Behaviour),
		Advantages: batch.Gather(rows, of, adv.Advantages), Reference: batch.Gather(rows, of, old.reference),
		Weights: batch.Gather(rows, of, old.weights),
	}
	return b, t.placeProximal(b, batch.Gather(rows, of, rows.Versions))
}

// micro goes forward, asks the loss for its gradient with respect to what came up, and sends that down.
func (t *trainer) micro(ctx context.Context, rows *batch.Rows, of []int, counts loss.Counts, plan *loss.Plan, old *oldPolicy, adv *advantage.Result) error {
	out, err := t.deps.Engine.Forward(ctx, rows.GPU(of), true)
	if err != nil {
		return fmt.Errorf("forward: %w", err)
	}
	b, err := t.lossBatch(rows, of, widen(out.Logprobs), old, adv)
	if err != nil {
		return err
	}
	if plan == nil && t.objective.Span() != loss.SpanRow { // the one micro-batch is the whole minibatch
		if plan, err = t.planOf(b, counts); err != nil {
			return err
		}
	}
	b.Entropies, b.Counts, b.Plan = widen(out.Entropies), counts, plan
	if t.cfg.Critic.Network == CriticHead {
		b.Values, b.OldValues, b.Returns = widen(out.Values), batch.Gather(rows, of, old.values), batch.Gather(rows, of, adv.Returns)
	}
	if err := t.objective.Loss(b, &t.result); err != nil {
		return fmt.Errorf("loss %s: %w", t.cfg.Loss.Name, err)
	}
	t.now.lost(b, &t.result)
	if err := t.deps.Engine.Backward(ctx, gradients(&t.result)); err != nil {
		return fmt.Errorf("backward: %w", err)
	}
	return nil
}

// placeProximal sets what ratios are taken against where it was not computed at the start of the step.
func (t *trainer) placeProximal(b *loss.Batch, versions []int32) error {
	switch {
	case t.cfg.Proximal != ProximalRecompute:
		b.Proximal = make([]float64, len(b.Mask))
		if err := loss.Approximate(t.cfg.Proximal, t.step+1, versions, b.Logprobs, b.Behaviour, b.Proximal); err != nil {
			return fmt.Errorf("approximate the proximal policy: %w", err)
		}
	case b.Proximal == nil && t.proximal:
		b.Proximal = b.Logprobs // the first and only minibatch: the policy is still that of the start
	}
	return nil
}

// gradients are the loss's, as an engine takes them.
func gradients(r *loss.Result) *gpu.Gradients {
	return &gpu.Gradients{Logprobs: narrow(r.Grad), Entropies: narrow(r.GradEntropies), Values: narrow(r.GradValues)}
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

// mismatchKL estimates KL(behaviour || policy) a token by k3 = exp(d) - 1 - d with d = policy - behaviour
// (Schulman 2020): never negative, and the measure of how far sampling and training are apart.
func mismatchKL(policy, behaviour []float64, mask []uint8) (sum, count float64) {
	for i, m := range mask {
		if m != 0 {
			d := max(-20, min(20, policy[i]-behaviour[i]))
			sum += math.Exp(d) - 1 - d
			count++
		}
	}
	return sum, count
}
