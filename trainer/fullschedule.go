package trainer

import (
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// fullSchedule decides which checkpoints are full. The others are light: their steps are learnt again at a start.
type fullSchedule struct {
	cfg checkpoint.Config
	// steps is the run's number of steps. again reports whether steps can be learnt again: to the bit, or so near the published version that
	// its weights take the place of those that were learnt.
	steps int64
	again bool
	// light is set while the newest checkpoint is a light one.
	light bool
	// step, at and cost are those of the newest full checkpoint that this process has written; a zero cost where it has written none.
	step int64
	at   time.Time
	cost time.Duration
}

func newFullSchedule(cfg Config, deps Deps) fullSchedule {
	a, ok := deps.Engine.(gpu.Adapting)
	adapts := ok && a.Adapts() // versions are adapters then, and checkpoints whole models
	again := deps.Engine.Limits().Repeats || !adapts && cfg.Checkpoint.MaxDrift > 0
	return fullSchedule{cfg: cfg.Checkpoint, steps: cfg.Steps, again: again}
}

// isFullDue reports whether the checkpoint of a step is to be full. A start finds a full one before any light one, since the first is full
// and a start makes the newest full.
func (f *fullSchedule) isFullDue(step int64, now time.Time) bool {
	switch every := int64(f.cfg.Every); {
	case !f.again, step == 0, step >= f.steps, every > 0 && step%every == 0:
		return true
	case f.cfg.FullEvery > 0:
		return step-f.step >= f.cfg.FullEvery
	case f.cfg.FullShare == 0:
		return false
	}
	// A process that has not written any does not know what one costs.
	return f.cost == 0 || f.cost.Seconds() <= f.cfg.FullShare*now.Sub(f.at).Seconds()
}

// noteSaved notes that a checkpoint was written.
func (f *fullSchedule) noteSaved(c *checkpoint.Checkpoint, now time.Time, took time.Duration) {
	if f.light = c.State.Light; !f.light {
		f.noteFull(c.State.Step, now, took)
	}
}

// noteFull notes that the newest checkpoint is a full one, and how long it took.
func (f *fullSchedule) noteFull(step int64, now time.Time, took time.Duration) {
	f.light, f.step, f.at, f.cost = false, step, now, max(took, 1)
}
