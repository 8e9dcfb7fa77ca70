package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/streams"
)

// Run trains until the configured number of steps is done, the prompts are used up, the run is drained, or ctx ends. It goes on from the
// newest checkpoint if there is one; otherwise it makes version 0, by the cold start if one is configured. A drained or finished run
// returns nil. When ctx ends, the step in progress is lost, and nothing else. A run has a single trainer: when another trainer takes the run
// over, Run returns [streams.ErrFenced], and nothing that it did since has changed the run.
func Run(ctx context.Context, cfg Config, deps Deps) error {
	known := &poisoned{reasons: map[uint64]string{}}
	for {
		err := runOnce(ctx, cfg, deps, known)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case errors.Is(err, gpu.ErrLost):
			// The engine's processes have ended, and with them everything since the checkpoint.
			if err := known.discardEngine(ctx, err, deps); err != nil {
				return err
			}
		case streams.IsLost(err):
			// The stream was made anew, or has lost messages: go back to the checkpoint and have the lost messages rolled out again.
			clear(known.reasons)
			known.anew, known.held = false, false
		default:
			if err := known.refuseTrajectory(err, deps.Log); err != nil {
				return err
			}
		}
	}
}

func runOnce(ctx context.Context, cfg Config, deps Deps, known *poisoned) (err error) {
	ctx, fence := context.WithCancelCause(ctx)
	defer fence(nil)
	t, err := startTrainer(ctx, fence, cfg, deps, known)
	if err != nil {
		return fencedError(ctx, err)
	}
	defer func() { err = errors.Join(fencedError(ctx, err), t.closeRooms()) }()

	// A crash may have cut off the stages after a checkpoint: all of them are done again.
	if err := t.finishStep(ctx); err != nil {
		return err
	}
	// What was learnt again is not learnt once more at the next start. The version was published before, so that weights other than those
	// that the run had take the place of no checkpoint.
	if err := t.completeCheckpoint(ctx); err != nil {
		return err
	}
	for t.step < cfg.Steps {
		step := t.step + 1 // a stage that fails late has raised it
		err := t.trainStep(ctx)
		if errors.Is(err, errUsedUp) {
			t.deps.Log.Info("the run ends: its prompts are used up", "step", t.step, "steps", t.cfg.Steps)
			t.deps.UsedUp(t.step)
			break
		}
		if errors.Is(err, errDrained) {
			break
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		known.losses = 0
	}
	// The model that the run leaves, also where it was drained before its last step.
	if err := t.completeCheckpoint(ctx); err != nil {
		return err
	}
	if err := t.intake.KeepRest(ctx); err != nil {
		return err
	}
	t.reportDone()
	return nil
}

// trainStep is one step of the loop.
func (t *trainer) trainStep(ctx context.Context) error {
	err := t.runStages(ctx, []stage{
		// Group-complete, fresh enough, oldest first.
		{"batch", t.nextBatch},
		// Advantages, then minibatches: the page is learner.Learn.
		{"update", t.learnBatch},
		// From here on the batch is trained on, and the policy is a new version. The consequences for the groups in hand and for new groups
		// are decided before the checkpoint, so that the checkpoint holds the decision.
		{"commit", t.commitStep},
		// Invariant: no ack of a trained trajectory, no version and no ticket leaves before the checkpoint that holds it.
		{"save", t.saveStep},
	})
	if err != nil {
		return err
	}
	return t.finishStep(ctx)
}

// finishStep does the stages that follow a checkpoint. Every stage is idempotent: a trainer that starts again does them all again.
func (t *trainer) finishStep(ctx context.Context) error {
	err := t.runStages(ctx, []stage{
		{"ack", t.intake.Ack},
		{"purge", t.intake.Purge},
		{"publish", t.publishVersion},
		// The oldest version that may be used from now on.
		{"control", t.putControl},
		{"issue", t.intake.Issue},
	})
	if err != nil {
		return err
	}
	t.report.endStep(t.step, t.intake.Counts(), t.control.writtenBounds())
	t.intake.Forget()
	return nil
}

// stage is a part of a step, by the name that Deps.After is called with.
type stage struct {
	name string
	do   func(context.Context) error
}

// runStages does stages in order, up to the first that fails.
func (t *trainer) runStages(ctx context.Context, stages []stage) error {
	for _, s := range stages {
		if err := s.do(ctx); err != nil {
			return err
		}
		t.deps.After(s.name)
	}
	return nil
}
