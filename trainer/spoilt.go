package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/weir-rl/weir/trainer/learner"
)

// spoilt are the trajectories that were found to spoil a step, by sequence, with why. A step in which that happens is begun
// anew from the checkpoint, and they are refused when they are read again: as if that had been known when they came. A trainer
// that is killed in between finds them again, since the same batch has the same fault.
type spoilt struct {
	step  int64
	found int // in that step
	// held says that the trainer has taken the run, anew that this start begins a step anew in a run that it holds.
	held, anew bool
	reasons    map[uint64]string
	// losses counts how often the engine was lost since a step was done.
	losses int
}

// maxLosses bounds how often in a row the engine may be lost within one step.
const maxLosses = 3

// lose has the trainer begin anew with an engine that has lost its processes; it returns an error where that has not helped.
func (s *spoilt) lose(ctx context.Context, err error, deps Deps) error {
	s.losses++
	if s.losses > maxLosses {
		return fmt.Errorf("the engine was lost %d times before a step was done: %w", s.losses, err)
	}
	if deps.Log != nil {
		deps.Log.Warn("the engine was lost: it is begun anew from the newest checkpoint", "err", err)
	}
	s.anew = s.held
	return deps.Engine.Discard(ctx)
}

// leastSpoilt and shareSpoilt bound the trajectories of one step that are refused for its faults: at most
// leastSpoilt, or one in shareSpoilt of the batch where that is more. Beyond that the machine or the weights are at fault.
const (
	leastSpoilt = 8
	shareSpoilt = 4
)

// refuse notes the trajectory that an error blames; it returns an error where trying the step again would not help.
func (s *spoilt) refuse(err error, log *slog.Logger) error {
	var e *learner.TrajectoryError
	if !errors.As(err, &e) {
		return err
	}
	if s.step != e.Step {
		s.step, s.found = e.Step, 0
	}
	if _, again := s.reasons[e.Sequence]; again || s.found >= max(leastSpoilt, e.Of/shareSpoilt) {
		return fmt.Errorf("%d trajectories of one step were refused for its faults: the machine or the weights may be at fault: %w", s.found, err)
	}
	s.found++
	s.anew = true
	s.reasons[e.Sequence] = "it spoils the step: " + e.Err.Error()
	if log != nil {
		log.Warn("a trajectory spoils the step: it is refused, and the step begun anew", "step", e.Step, "trajectory", e.ID, "err", e.Err)
	}
	return nil
}
