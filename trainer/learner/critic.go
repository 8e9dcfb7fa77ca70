package learner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/stats"
)

// critic estimates the values of states. A nil critic means no critic: all its methods return false.
type critic struct {
	Critic
	// engine is the policy's own where the critic is a head; for a network of its own it is nil until it is opened.
	engine gpu.Engine
}

// newCritic checks that the configured critic can be made; nil where none is configured.
func newCritic(cfg Config, deps Deps) (*critic, error) {
	c := &critic{Critic: cfg.Critic}
	switch cfg.Critic.Network {
	case CriticHead:
		if !deps.Engine.Config().ValueHead {
			return nil, errors.New("critic: network is head, and the policy's engine has no value head")
		}
		c.engine = deps.Engine
	case CriticOwn:
		if deps.NewEngine == nil {
			return nil, errors.New("critic: network is own, and there is no engine for it")
		}
	default:
		return nil, nil
	}
	return c, nil
}

// isHead reports whether the critic is a value head on the policy's trunk.
func (c *critic) isHead() bool { return c != nil && c.Network == CriticHead }

// isNetwork reports whether the critic is a network of its own.
func (c *critic) isNetwork() bool { return c != nil && c.Network == CriticOwn }

// isWarmingUp reports whether the step that follows the first n trains the critic alone.
func (c *critic) isWarmingUp(n int64) bool { return c != nil && n < c.WarmupSteps }

// isTrainedApart reports whether in the step that follows the first n the critic has passes and optimizer steps to itself.
func (c *critic) isTrainedApart(n int64) bool { return c.isNetwork() || c.isWarmingUp(n) }

// startingModel is the shape of the network in the configured folder, which must fit the policy.
func (l *Learner) startingModel(dir string) (gpu.Config, error) {
	folder, err := hf.Open(dir)
	if err != nil {
		return gpu.Config{}, err
	}
	defer func() { _ = folder.Close() }() // read only
	tokenizer, err := folder.Tokenizer()
	if err != nil {
		return gpu.Config{}, err
	}
	policy := l.deps.Engine.Config()
	switch model := folder.Config; {
	case model.VocabSize != policy.VocabSize || l.deps.Tokenizer != nil && !bytes.Equal(tokenizer, l.deps.Tokenizer):
		return model, fmt.Errorf("critic.folder: %s has another tokenizer than the policy", dir)
	case model.MaxPositions < policy.MaxPositions:
		return model, fmt.Errorf("critic.folder: %s takes %d positions, the policy %d", dir, model.MaxPositions, policy.MaxPositions)
	default:
		return model, nil
	}
}

// savedModel is the shape of a network that an engine has exported.
func savedModel(dir string) (gpu.Config, error) { return hf.ReadConfig(dir) }

// accumulateCritic gathers, over the micro-batches, the gradient of a critic that is trained apart: its own loss alone.
func (m *minibatch) accumulateCritic(ctx context.Context) error {
	parts := engineBatches(m.rows, m.micros)
	for _, b := range parts {
		b.ValuesOnly = true
	}
	err := m.critic.engine.Accumulate(ctx, parts, func(i int, out *gpu.Outputs) (*gpu.Gradients, error) {
		gradients, err := m.valueGradients(m.micros[i], out)
		return gradients, inBatchRows(err, m.micros[i])
	})
	if err != nil {
		return fmt.Errorf("critic: %w", err)
	}
	return nil
}

// valueGradients are the gradients of the critic's loss with respect to its engine's outputs for some rows.
func (m *minibatch) valueGradients(of []int, out *gpu.Outputs) (*gpu.Gradients, error) {
	b := &loss.Batch{
		Offsets: m.rows.PackedOffsets(of), Mask: batch.Gather(m.rows, of, m.rows.Mask), Values: toFloat64(out.Values), Counts: m.counts,
		ValueMask: batch.Gather(m.rows, of, m.rows.Credit), ValueCounts: m.valueCounts,
		OldValues: batch.Gather(m.rows, of, m.before.values), Returns: batch.Gather(m.rows, of, m.result.Returns),
	}
	if err := m.objective.ValueLoss(b, &m.loss); err != nil {
		return nil, fmt.Errorf("value loss: %w", err)
	}
	m.stats.losses.Add(m.loss.Metrics)
	return &gpu.Gradients{Values: toFloat32(m.loss.GradValues), Detached: m.critic.isHead()}, nil
}

// stepCritic is the optimizer step of a critic that is trained apart.
func (m *minibatch) stepCritic(ctx context.Context) error {
	o := m.cfg.Critic.Optimizer.stepOptions(m.version, m.cfg.Steps)
	m.stats.criticRate.addValue(o.LearningRate)
	if m.critic.isHead() {
		o.LearningRate, o.ValueLearningRate = 0, o.LearningRate
	}
	done, err := m.critic.engine.Step(ctx, o)
	if err != nil {
		return fmt.Errorf("critic: optimizer step: %w", err)
	}
	if done.Skipped {
		m.stats.criticSkipped++
		m.deps.Log.Warn("the critic's optimizer step skipped: the gradient is not finite", "step", m.version+1)
	} else {
		m.stats.criticNorm.addValue(done.GradNorm)
	}
	return nil
}

// policyOptions are the options of an optimizer step of the policy: its schedule begins after the critic's warm-up.
func (s *step) policyOptions() gpu.StepOptions {
	warmup := s.cfg.Critic.WarmupSteps
	o := s.cfg.Optimizer.stepOptions(s.version-warmup, s.cfg.Steps-warmup)
	if s.critic.isHead() {
		of := s.cfg.Critic.Optimizer.stepOptions(s.version, s.cfg.Steps)
		o.ValueLearningRate = max(of.LearningRate, math.SmallestNonzeroFloat64) // 0 would be the policy's
		s.stats.criticRate.addValue(of.LearningRate)
	}
	return o
}

// endWarmup sets the optimizer that a value head shares with its trunk back to its start: the trunk has taken no step.
//
// Invariant: a critic's warm-up leaves the policy and its optimizer as they were, bit for bit.
func (s *step) endWarmup(ctx context.Context) error {
	if !s.critic.isHead() || s.version+1 != s.cfg.Critic.WarmupSteps {
		return nil
	}
	return s.deps.Engine.ResetOptimizer(ctx)
}

// explainedVariance is 1 - Var(returns - values) / Var(returns) over the masked tokens: 1 for a perfect critic, 0 for a critic that is no
// better than the mean, and 0 where all returns are the same.
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
