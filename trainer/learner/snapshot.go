package learner

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/weir-rl/weir/gpu"
)

// State is the whole state that a learner goes on from. The counters of the schedules are not in it: they follow from the version of the
// next batch.
type State struct {
	// Policy and Critic are for Restore; Snapshot leaves them nil, since the engines write their own files. A nil Policy leaves the engine
	// unchanged; with a nil Critic a critic that is a network of its own starts as configured.
	Policy, Critic *Network
	// Random is the state of the generator that shuffles minibatches; nil is its start.
	Random []byte
	// Estimator is the estimator's state from the batches so far; nil for an estimator without state.
	Estimator *EstimatorState
	// KLCoef is the coefficient of the KL term in force, which may adapt; nil when not known. ConfiguredKLCoef is the
	// configuration's at the time.
	KLCoef, ConfiguredKLCoef *float64
}

// Network is a model with its optimizer, as its engine wrote them into a folder.
type Network struct {
	// Dir has the weights and the optimizer's moments.
	Dir string
	// OptimizerSteps is the count that gpu.Engine.SaveOptimizer returned.
	OptimizerSteps int64
}

// Snapshot is the present state without the networks.
func (l *Learner) Snapshot() (*State, error) {
	klCoef, configured := l.objective.KLCoef(), l.cfg.Loss.KL.Coef
	s := &State{KLCoef: &klCoef, ConfiguredKLCoef: &configured}
	var err error
	if s.Random, err = l.random.MarshalBinary(); err != nil {
		return nil, fmt.Errorf("save random state: %w", err)
	}
	s.Estimator, err = l.credit.saveState()
	return s, err
}

// Critic is the engine of a critic that is a network of its own; nil for any other critic.
func (l *Learner) Critic() gpu.Engine {
	if !l.critic.isNetwork() {
		return nil
	}
	return l.critic.engine
}

// Restore goes on from a state. It is called once, before the first Learn.
func (l *Learner) Restore(ctx context.Context, s *State) error {
	if s.Policy != nil {
		if err := s.Policy.loadInto(ctx, l.deps.Engine); err != nil {
			return fmt.Errorf("load the policy: %w", err)
		}
	}
	if err := l.openCritic(ctx, s.Critic); err != nil {
		return err
	}
	if s.Random != nil {
		if err := l.random.UnmarshalBinary(s.Random); err != nil {
			return fmt.Errorf("load random state: %w", err)
		}
	}
	l.objective.restoreKLCoef(s.KLCoef, s.ConfiguredKLCoef)
	return l.credit.restoreState(s.Estimator, l.deps.Log)
}

// openCritic makes the engine of a critic that is a network of its own, from its saved files or, without files, as it starts.
func (l *Learner) openCritic(ctx context.Context, files *Network) error {
	if !l.critic.isNetwork() {
		return nil
	}
	model, err := l.deps.Engine.Config(), error(nil)
	switch {
	case files != nil:
		model, err = savedModel(files.Dir)
	case l.cfg.Critic.Folder != "":
		model, err = l.startingModel(l.cfg.Critic.Folder)
	}
	if err != nil {
		return fmt.Errorf("start the critic: %w", err)
	}
	model.ValueHead = true
	e, err := l.deps.NewEngine(model)
	if err != nil {
		return fmt.Errorf("make the critic: %w", err)
	}
	l.critic.engine = e
	switch {
	case files != nil:
		err = files.loadInto(ctx, e)
	case l.cfg.Critic.Folder != "":
		err = e.Import(ctx, l.cfg.Critic.Folder)
	default:
		err = l.copyPolicy(ctx, e)
	}
	if err != nil {
		return fmt.Errorf("load the critic: %w", err)
	}
	return nil
}

// copyPolicy gives an engine the policy's weights as they stand.
func (l *Learner) copyPolicy(ctx context.Context, e gpu.Engine) (err error) {
	dir := l.deps.Scratch
	if dir == "" {
		if dir, err = os.MkdirTemp("", "policy-"); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	pending, err := l.deps.Engine.Export(ctx, dir, gpu.ExportOptions{})
	if err != nil {
		return err
	}
	if _, err := pending.Wait(ctx); err != nil {
		return err
	}
	return e.Import(ctx, dir)
}

// NeedsReference reports whether the loss reads a frozen reference policy, for which OpenReference must be called before Learn.
func (l *Learner) NeedsReference() bool { return l.objective.NeedsReference() }

// OpenReference makes the engine of the frozen reference policy; load gives it its weights.
func (l *Learner) OpenReference(load func(reference gpu.Engine) error) error {
	e, err := l.deps.NewEngine(l.deps.Engine.Config())
	if err != nil {
		return fmt.Errorf("make the reference policy: %w", err)
	}
	l.reference = e
	return load(e)
}

// Discard drops the gradients that an interrupted step has gathered.
func (l *Learner) Discard(ctx context.Context) error {
	for _, e := range []gpu.Engine{l.deps.Engine, l.Critic()} {
		if e == nil {
			continue
		}
		if err := e.Discard(ctx); err != nil {
			return fmt.Errorf("drop the gradient of a step that was broken off: %w", err)
		}
	}
	return nil
}

// SaveNetwork has an engine write its weights and its optimizer into an empty folder.
func SaveNetwork(ctx context.Context, e gpu.Engine, dir string) (*Network, error) {
	pending, err := e.Export(ctx, dir, gpu.ExportOptions{})
	if err != nil {
		return nil, err
	}
	if _, err := pending.Wait(ctx); err != nil {
		return nil, err
	}
	steps, err := e.SaveOptimizer(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &Network{Dir: dir, OptimizerSteps: steps}, nil
}

// loadInto gives an engine the network's weights and optimizer.
func (n *Network) loadInto(ctx context.Context, e gpu.Engine) error {
	if err := e.Import(ctx, n.Dir); err != nil {
		return err
	}
	return e.LoadOptimizer(ctx, n.Dir, n.OptimizerSteps)
}
