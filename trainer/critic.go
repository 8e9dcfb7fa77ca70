package trainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/stats"
)

// What a critic can be.
const (
	CriticNone = "none"
	CriticHead = "head"
	CriticOwn  = "own"
)

// Critic says what estimates the values of states, for the advantages that need them, and how it is trained. Its loss
// is trainer.loss.value.
type Critic struct {
	// Network is none; head, a value head on the policy's trunk; or own, a network beside the policy's, which is not
	// published. Defaults to "none".
	Network string `koanf:"network"`
	// Folder is a Hugging Face folder that a network of its own starts from; "" starts from the policy's version 0. A
	// value head that is not there starts at 0. Defaults to "".
	Folder string `koanf:"folder"`
	// WarmupSteps is how many of the run's first steps train the critic alone: the versions up to that one have the
	// weights of version 0. A value head is then trained without its trunk. Defaults to 0.
	WarmupSteps int64 `koanf:"warmup_steps"`
	// Optimizer is the critic's own, with its schedule over all of the run's steps. Of a value head's, the rate and the
	// schedule alone count after the warm-up: one step then moves it and the policy, under the policy's optimizer.
	Optimizer Optimizer `koanf:"optimizer"`
}

// DefaultCritic is none.
func DefaultCritic() Critic {
	return Critic{Network: CriticNone, Optimizer: Optimizer{
		LearningRate: 1e-3, Schedule: ScheduleConstant, FinalRatio: 0.1, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1,
	}}
}

// Validate reports every fault.
func (c Critic) Validate() error {
	var f faults
	switch c.Network {
	case CriticNone, CriticHead, CriticOwn:
	default:
		f.check("network", false, fmt.Sprintf("%q: must be none, head or own", c.Network))
	}
	f.check("folder", c.Folder == "" || c.Network == CriticOwn, fmt.Sprintf("%q: only a network of its own starts from a folder: set network to own", c.Folder))
	f.notNegative("warmup_steps", c.WarmupSteps)
	f.check("warmup_steps", c.WarmupSteps <= 0 || c.Network != CriticNone, fmt.Sprintf("%d: there is no critic to warm up: set network to head or own", c.WarmupSteps))
	f.section("optimizer", c.Optimizer.Validate())
	return errors.Join(f...)
}

// warming says that only the critic is trained in the step after so many.
func (c Critic) warming(step int64) bool { return step < c.WarmupSteps }

// apart says that the critic has passes and optimizer steps to itself in the step after so many.
func (c Critic) apart(step int64) bool { return c.Network == CriticOwn || c.warming(step) }

// criticFault says what an advantage lacks, "" if nothing.
func (c Config) criticFault() string {
	for _, need := range advantage.Requires(c.Advantage.Name, c.Advantage.Options) {
		if need == "Values" && c.Critic.Network == CriticNone {
			return fmt.Sprintf("none: advantage %s needs a critic: head, a value head on the policy, or own, a network of its own", c.Advantage.Name)
		}
	}
	return ""
}

// chooseCritic checks that the critic can be had.
func (t *trainer) chooseCritic() error {
	head := t.deps.Engine.Config().ValueHead
	switch t.cfg.Critic.Network {
	case CriticHead:
		if !head {
			return errors.New("critic: network is head, and the policy's engine has no value head")
		}
		t.critic = t.deps.Engine
	case CriticOwn:
		if t.deps.NewEngine == nil {
			return errors.New("critic: network is own, and there is no engine for it")
		}
	}
	return nil
}

// openCritic makes a network of its own as the checkpoint holds it, or as it starts.
func (t *trainer) openCritic(ctx context.Context, c *checkpoint.Checkpoint) (err error) {
	if t.cfg.Critic.Network != CriticOwn {
		return nil
	}
	if c.Critic == nil {
		if c.Critic, err = t.startingCritic(c); err != nil {
			return fmt.Errorf("start the critic: %w", err)
		}
	}
	critic, err := t.deps.NewEngine(c.Critic.Config)
	if err != nil {
		return fmt.Errorf("make the critic: %w", err)
	}
	t.critic = critic
	if err := t.critic.SetWeights(ctx, c.Critic.Weights); err != nil {
		return fmt.Errorf("load the critic's weights: %w", err)
	}
	if err := t.critic.SetOptimizer(ctx, c.Critic.Optimizer); err != nil {
		return fmt.Errorf("load the critic's optimizer: %w", err)
	}
	return nil
}

// startingCritic is the configured folder's, else the policy as it stands.
func (t *trainer) startingCritic(c *checkpoint.Checkpoint) (*checkpoint.Critic, error) {
	model, weights := t.deps.Engine.Config(), c.Weights
	if dir := t.cfg.Critic.Folder; dir != "" {
		policy := model
		var tokenizer []byte
		var err error
		if model, weights, tokenizer, err = t.deps.Folder.Load(dir); err != nil {
			return nil, err
		}
		switch {
		case model.VocabSize != policy.VocabSize || t.deps.Tokenizer != nil && !bytes.Equal(tokenizer, t.deps.Tokenizer):
			return nil, fmt.Errorf("critic.folder: %s has another tokenizer than the policy", dir)
		case model.MaxPositions < policy.MaxPositions:
			return nil, fmt.Errorf("critic.folder: %s takes %d positions, the policy %d", dir, model.MaxPositions, policy.MaxPositions)
		}
	}
	model, weights = gpu.WithValueHead(model, weights, true)
	return &checkpoint.Critic{Config: model, Weights: weights, Optimizer: &gpu.OptimizerState{}}, nil
}

// savedCritic is a network of its own as a checkpoint holds it, nil without one.
func (t *trainer) savedCritic(ctx context.Context) (*checkpoint.Critic, error) {
	if t.cfg.Critic.Network != CriticOwn {
		return nil, nil
	}
	w, o, err := snapshot(ctx, t.critic)
	if err != nil {
		return nil, fmt.Errorf("critic: %w", err)
	}
	return &checkpoint.Critic{Config: t.critic.Config(), Weights: w, Optimizer: o}, nil
}

// criticMicro is micro for a critic that is apart: its own loss alone.
func (t *trainer) criticMicro(ctx context.Context, rows *batch.Rows, of []int, counts loss.Counts, old *oldPolicy, adv *advantage.Result) error {
	in := rows.GPU(of)
	in.ValuesOnly = true
	out, err := t.critic.Forward(ctx, in, true)
	if err != nil {
		return fmt.Errorf("critic: forward: %w", err)
	}
	b := &loss.Batch{
		Offsets: in.Offsets, Mask: in.Mask, Values: widen(out.Values), Counts: counts,
		OldValues: batch.Gather(rows, of, old.values), Returns: batch.Gather(rows, of, adv.Returns),
	}
	if err := t.objective.ValueLoss(b, &t.result); err != nil {
		return fmt.Errorf("value loss: %w", err)
	}
	t.now.losses.Add(t.result.Metrics)
	g := &gpu.Gradients{Values: narrow(t.result.GradValues), Detached: t.cfg.Critic.Network == CriticHead}
	if err := t.critic.Backward(ctx, g); err != nil {
		return fmt.Errorf("critic: backward: %w", err)
	}
	return nil
}

// criticStep is the optimizer step of a critic that is apart.
func (t *trainer) criticStep(ctx context.Context) error {
	o := t.cfg.Critic.Optimizer.options(t.step, t.cfg.Steps)
	t.now.criticRate.add(o.LearningRate)
	if t.cfg.Critic.Network == CriticHead {
		o.LearningRate, o.ValueLearningRate = 0, o.LearningRate
	}
	stats, err := t.critic.Step(ctx, o)
	if err != nil {
		return fmt.Errorf("critic: optimizer step: %w", err)
	}
	if stats.Skipped {
		t.now.criticSkipped++
		t.deps.Log.Warn("the critic's optimizer step skipped: the gradient is not finite", "step", t.step+1)
	} else {
		t.now.criticNorm.add(stats.GradNorm)
	}
	return nil
}

// policyOptions are those of a step of the policy: its schedule begins after the critic's warm-up.
func (t *trainer) policyOptions() gpu.StepOptions {
	warmup := t.cfg.Critic.WarmupSteps
	o := t.cfg.Optimizer.options(t.step-warmup, t.cfg.Steps-warmup)
	if t.cfg.Critic.Network == CriticHead {
		of := t.cfg.Critic.Optimizer.options(t.step, t.cfg.Steps)
		o.ValueLearningRate = max(of.LearningRate, math.SmallestNonzeroFloat64) // 0 would be the policy's
		t.now.criticRate.add(of.LearningRate)
	}
	return o
}

// endWarmup sets the optimizer that a value head shares with its trunk back to its start: the trunk has taken no step.
//
// Invariant: a critic's warm-up leaves the policy and its optimizer as they were, bit for bit.
func (t *trainer) endWarmup(ctx context.Context) error {
	if t.cfg.Critic.Network != CriticHead || t.step+1 != t.cfg.Critic.WarmupSteps {
		return nil
	}
	return forgetMoments(ctx, t.deps.Engine)
}

// explainedVariance is 1 - Var(returns - values) / Var(returns) over the masked tokens: 1 for a critic that knows all,
// 0 for one that knows no more than the mean, and 0 where all returns are the same.
func explainedVariance(values, returns []float64, mask []uint8) float64 {
	left := make([]float64, len(values))
	for i := range left {
		left[i] = returns[i] - values[i]
	}
	all := stats.MomentsOf(returns, mask)
	if all.Squares == 0 {
		return 0
	}
	return 1 - stats.MomentsOf(left, mask).Squares/all.Squares
}
