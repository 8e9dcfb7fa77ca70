package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/trainer/batch"
)

// Run trains until the configured number of steps is done, the run is drained, or ctx ends. It goes on from the
// newest checkpoint if there is one; otherwise it makes version 0, by the cold start if one is configured.
// A drained or finished run returns nil. When ctx ends, the step in progress is lost, and nothing else. A run has one
// trainer: when another takes it over, this one ends with [ErrFenced], and has done nothing to the run since.
func Run(ctx context.Context, cfg Config, deps Deps) error {
	known := &spoilt{reasons: map[uint64]string{}}
	for {
		err := recreated(runOnce(ctx, cfg, deps, known))
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case errors.Is(err, ErrRecreated):
			// What was in the old stream is lost: go back to the checkpoint and have it rolled out again.
			clear(known.reasons)
			known.anew = false
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

	// What a crash may have left undone: everything after the checkpoint is done again.
	if err := t.finish(ctx); err != nil {
		return err
	}
	for t.step < cfg.Steps {
		step := t.step + 1 // a part that fails late has raised it
		err := t.trainStep(ctx)
		if errors.Is(err, errDrained) {
			break
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return t.done(ctx)
}

// trainStep is one step of the loop.
func (t *trainer) trainStep(ctx context.Context) error {
	// Group-complete, fresh enough, oldest first.
	b, err := t.nextBatch(ctx)
	if err != nil {
		return err
	}
	t.deps.After("batch")
	rows := t.rows(b)
	if err := t.learn(ctx, b, rows); err != nil {
		return t.blame(ctx, err, b, rows)
	}
	t.deps.After("update")
	// From here on the batch is trained on, and the policy is a new version. Decide what that means for the
	// groups in hand and for new ones before the checkpoint, so that the checkpoint holds the decision.
	if err := t.commit(ctx, b); err != nil {
		return err
	}
	t.deps.After("commit")

	// Invariant: no ack of a trained trajectory, no version and no ticket leaves before the checkpoint that holds it.
	if err := t.save(ctx, b); err != nil {
		return err
	}
	return t.finish(ctx)
}

// learn is what a batch does to the policy.
func (t *trainer) learn(ctx context.Context, b *batch.Batch, rows *batch.Rows) error {
	// The proximal policy of this step: what ratios are taken against.
	old, err := t.oldPolicy(ctx, rows)
	if err != nil {
		return err
	}
	adv, err := t.advantages(rows, old)
	if err != nil {
		return err
	}
	rows.Silence(t.cfg.silenced(b))

	// Minibatches within a token budget, packed.
	return t.update(ctx, rows, old, adv)
}

// finish is what follows a checkpoint. Every part is idempotent: a trainer that starts again does it all again.
func (t *trainer) finish(ctx context.Context) error {
	if err := t.ack(ctx); err != nil {
		return err
	}
	t.deps.After("ack")
	if err := t.purge(ctx); err != nil {
		return err
	}
	t.deps.After("purge")
	if err := t.publish(ctx); err != nil {
		return err
	}
	t.deps.After("control")
	if err := t.issue(ctx); err != nil {
		return err
	}
	t.deps.After("issue")
	t.report()
	return nil
}
