package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/streams"
)

// Run trains until the configured number of steps is done, the run is drained, or ctx ends. It goes on from the
// newest checkpoint if there is one; otherwise it makes version 0, by the cold start if one is configured.
// A drained or finished run returns nil. When ctx ends, the step in progress is lost, and nothing else. A run has one
// trainer: when another takes it over, this one ends with [streams.ErrFenced], and has done nothing to the run since.
func Run(ctx context.Context, cfg Config, deps Deps) error {
	known := &spoilt{reasons: map[uint64]string{}}
	for {
		err := runOnce(ctx, cfg, deps, known)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case errors.Is(err, gpu.ErrLost):
			// The engine's processes have ended, and with them what was done since the checkpoint.
			if err := known.lose(ctx, err, deps); err != nil {
				return err
			}
		case streams.IsLost(err):
			// The stream was made anew, or has lost messages: go back to the checkpoint and have what was in the old stream rolled
			// out again.
			clear(known.reasons)
			known.anew, known.held = false, false
		default:
			if err := known.refuse(err, deps.Log); err != nil {
				return err
			}
		}
	}
}

func runOnce(ctx context.Context, cfg Config, deps Deps, known *spoilt) (err error) {
	ctx, fence := context.WithCancelCause(ctx)
	defer fence(nil)
	t, err := start(ctx, fence, cfg, deps, known)
	if err != nil {
		return fenced(ctx, err)
	}
	defer func() { err = errors.Join(fenced(ctx, err), t.close()) }()

	// A crash may have left undone what follows a checkpoint: it is all done again.
	if err := t.finish(ctx); err != nil {
		return err
	}
	for t.step < cfg.Steps {
		step := t.step + 1 // a stage that fails late has raised it
		err := t.trainStep(ctx)
		if errors.Is(err, errDrained) {
			break
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		known.losses = 0
	}
	t.done()
	return nil
}

// trainStep is one step of the loop.
func (t *trainer) trainStep(ctx context.Context) error {
	err := t.run(ctx, []stage{
		// Group-complete, fresh enough, oldest first.
		{"batch", t.nextBatch},
		// Advantages, then minibatches: the page is learner.Learn.
		{"update", t.learn},
		// From here on the batch is trained on, and the policy is a new version. What that means for the groups in hand and
		// for new ones is decided before the checkpoint, so that the checkpoint holds the decision.
		{"commit", t.commit},
		// Invariant: no ack of a trained trajectory, no version and no ticket leaves before the checkpoint that holds it.
		{"save", t.save},
	})
	if err != nil {
		return err
	}
	return t.finish(ctx)
}

// finish is what follows a checkpoint. Every stage is idempotent: a trainer that starts again does them all again.
func (t *trainer) finish(ctx context.Context) error {
	err := t.run(ctx, []stage{
		{"ack", t.intake.Ack},
		{"purge", t.intake.Purge},
		{"publish", t.publish},
		// What is too old now.
		{"control", t.putControl},
		{"issue", t.intake.Issue},
	})
	if err != nil {
		return err
	}
	t.report.step(t.step, t.intake.Counts(), t.control.bounds())
	t.intake.Forget()
	return nil
}

// stage is a part of a step, by the name that Deps.After is called with.
type stage struct {
	name string
	do   func(context.Context) error
}

// run does stages in order, up to the first that fails.
func (t *trainer) run(ctx context.Context, stages []stage) error {
	for _, s := range stages {
		if err := s.do(ctx); err != nil {
			return err
		}
		t.deps.After(s.name)
	}
	return nil
}
