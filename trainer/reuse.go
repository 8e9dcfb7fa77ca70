package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/relearn"
)

// reuse has the newest batch, as long as further steps may train on it. Config.Reuse steps in a row train on a batch, as the epochs of PPO
// do; but each is a version that is published, so that sampling is never behind by more than eta. Nothing of it is in the stream or in the
// ledger: a batch that is used again has ended there, and a trainer that starts again reads the kept batch of its newest step.
//
// Invariant: a trajectory is trained on in at most trainer.reuse steps, and in none that begins more than eta versions after its oldest
// token.
type reuse struct {
	cfg      Config
	poisoned *poisoned
	// last is the batch of the newest step; nil where none is used again.
	last *batch.Batch
}

// keepBatch notes the batch that the newest step trained on.
func (r *reuse) keepBatch(b *batch.Batch) {
	if r.last = nil; b != nil && b.Uses() < r.cfg.Reuse {
		r.last = b
	}
}

// loadBatch takes up the batch of a checkpoint's step. A batch that is gone or damaged is used no more, and the log names it: the step
// after it begins with a fresh batch.
func (r *reuse) loadBatch(dir string, c *checkpoint.Checkpoint, deps Deps) error {
	r.last = nil
	if len(c.Record.Groups) == 0 || max(1, c.Record.Use) >= r.cfg.Reuse {
		return nil
	}
	kept, err := checkpoint.ReadBatch(dir, &c.Record)
	damage := (*checkpoint.Damage)(nil)
	if errors.Is(err, checkpoint.ErrNoBatch) || errors.As(err, &damage) {
		deps.Log.Warn("the newest batch is not used again: the next step begins with fresh trajectories", "step", c.State.Step, "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	b, err := relearn.NewBatch(r.cfg.Config, &c.Record, kept)
	if err != nil {
		return err
	}
	r.keepBatch(b)
	return nil
}

// nextUse returns the batch that the step after a version trains on once more; nil where a fresh batch is due.
func (r *reuse) nextUse(version int64, eta int) *batch.Batch {
	if r.last == nil {
		return nil
	}
	young := r.youngGroups(version, eta)
	if len(young) == 0 {
		return nil
	}
	return &batch.Batch{Version: version, Groups: young, Use: r.last.Uses() + 1}
}

// youngGroups are the groups of the last batch whose trajectories can all be used at a version. A group is used whole or not at all, since
// its advantages are those of the whole group.
func (r *reuse) youngGroups(version int64, eta int) (young []batch.Taken) {
	for _, g := range r.last.Groups {
		if !slices.ContainsFunc(g.Used(), func(m batch.Member) bool {
			_, spoils := r.poisoned.reasons[m.Sequence]
			return spoils || version-m.Oldest > int64(eta)
		}) {
			young = append(young, g)
		}
	}
	return young
}

// countAgain counts the versions in a row, from a version on, that train on the last batch once more.
func (r *reuse) countAgain(version int64, eta int) int {
	if r.last == nil {
		return 0
	}
	n := 0
	for n < r.cfg.Reuse-r.last.Uses() && len(r.youngGroups(version+int64(n), eta)) > 0 {
		n++
	}
	return n
}

// takeBatch returns the batch of the next step: the last batch once more, or a fresh batch, for which it waits.
func (t *trainer) takeBatch(ctx, wait context.Context) (*batch.Batch, error) {
	b := t.reuse.nextUse(t.step, t.control.eta)
	if b == nil {
		return t.intake.Next(ctx, wait)
	}
	if wait.Err() != nil {
		return nil, fmt.Errorf("next batch: %w", context.Cause(wait))
	}
	return b, nil
}
