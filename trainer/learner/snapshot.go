package learner

import (
	"context"
	"fmt"

	"github.com/weir-rl/weir/gpu"
)

// State is everything that a learner goes on from. The counters of the schedules are not in it: they follow from the
// version of the next batch.
type State struct {
	Policy Network
	// Critic is nil where the critic is not a network of its own, or has not been opened.
	Critic *Network
	// Random is the state of the generator that shuffles minibatches; nil is its start.
	Random []byte
	// Estimator is what the estimator has learnt from the batches so far; nil for one that learns nothing.
	Estimator *EstimatorState
	// KLCoef is the coefficient of the KL term in force, which may adapt; nil when not known. ConfiguredKLCoef is the
	// configuration's at the time.
	KLCoef, ConfiguredKLCoef *float64
}

// Network is a model with its optimizer.
type Network struct {
	Config    gpu.Config
	Weights   *gpu.Weights
	Optimizer *gpu.OptimizerState
}

// Snapshot copies the state out.
func (l *Learner) Snapshot(ctx context.Context) (*State, error) {
	klCoef, configured := l.objective.KLCoef(), l.cfg.Loss.KL.Coef
	s := &State{KLCoef: &klCoef, ConfiguredKLCoef: &configured}
	policy, err := networkOf(ctx, l.deps.Engine)
	if err != nil {
		return nil, err
	}
	s.Policy = *policy
	if l.critic.own() && l.critic.engine != nil {
		if s.Critic, err = networkOf(ctx, l.critic.engine); err != nil {
			return nil, fmt.Errorf("critic: %w", err)
		}
	}
	if s.Random, err = l.random.MarshalBinary(); err != nil {
		return nil, fmt.Errorf("save random state: %w", err)
	}
	s.Estimator, err = l.credit.state()
	return s, err
}

// Restore goes on from a state, whose weights and optimizers the engines copy. Of a state without a critic, a critic that
// is a network of its own starts as configured. It is called once, before the first Learn.
func (l *Learner) Restore(ctx context.Context, s *State) error {
	if err := l.openCritic(ctx, s); err != nil {
		return err
	}
	if err := s.Policy.load(ctx, l.deps.Engine); err != nil {
		return fmt.Errorf("load the policy: %w", err)
	}
	if s.Random != nil {
		if err := l.random.UnmarshalBinary(s.Random); err != nil {
			return fmt.Errorf("load random state: %w", err)
		}
	}
	l.objective.restoreKLCoef(s.KLCoef, s.ConfiguredKLCoef)
	return l.credit.restore(s.Estimator, l.deps.Log)
}

// NeedsReference says whether the loss reads a frozen reference policy, which OpenReference must be given before Learn.
func (l *Learner) NeedsReference() bool { return l.objective.NeedsReference() }

// OpenReference makes the frozen reference policy.
func (l *Learner) OpenReference(ctx context.Context, w *gpu.Weights) error {
	e, err := l.deps.NewEngine(l.deps.Engine.Config())
	if err != nil {
		return fmt.Errorf("make the reference policy: %w", err)
	}
	l.reference = e
	if err := l.reference.SetWeights(ctx, w); err != nil {
		return fmt.Errorf("load the reference policy: %w", err)
	}
	return nil
}

// Discard drops what a step that was broken off has gathered of a gradient. It changes the weights and the optimizer,
// which Restore sets again.
func (l *Learner) Discard(ctx context.Context) error {
	if _, err := l.deps.Engine.Step(ctx, l.cfg.Optimizer.options(0, l.cfg.Steps)); err != nil {
		return fmt.Errorf("drop the gradient of a step that was broken off: %w", err)
	}
	return nil
}

// networkOf copies an engine's model and optimizer out.
func networkOf(ctx context.Context, e gpu.Engine) (*Network, error) {
	w, err := e.Weights(ctx)
	if err != nil {
		return nil, fmt.Errorf("read weights: %w", err)
	}
	o, err := e.Optimizer(ctx)
	if err != nil {
		return nil, fmt.Errorf("read optimizer: %w", err)
	}
	return &Network{Config: e.Config(), Weights: w, Optimizer: o}, nil
}

// load gives an engine the network's weights and optimizer.
func (n *Network) load(ctx context.Context, e gpu.Engine) error {
	if err := e.SetWeights(ctx, n.Weights); err != nil {
		return fmt.Errorf("load weights: %w", err)
	}
	if err := e.SetOptimizer(ctx, n.Optimizer); err != nil {
		return fmt.Errorf("load optimizer: %w", err)
	}
	return nil
}

// forgetMoments sets an engine's optimizer back to its start.
func forgetMoments(ctx context.Context, e gpu.Engine) error {
	s, err := e.Optimizer(ctx)
	if err != nil {
		return fmt.Errorf("read the optimizer: %w", err)
	}
	s.Steps = 0
	for _, t := range s.Moments {
		clear(t.Data)
	}
	if err := e.SetOptimizer(ctx, s); err != nil {
		return fmt.Errorf("clear the optimizer: %w", err)
	}
	return nil
}
