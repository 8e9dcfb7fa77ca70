package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/weir-rl/weir/trainer/learner"
)

// poisoned holds the trajectories that made a step fail, by sequence, with the reason. The failed step is begun anew from the checkpoint,
// and these trajectories are refused when they are read again, as if the fault had been known on arrival. A trainer that is killed in
// between finds them again, since the same batch has the same fault.
type poisoned struct {
	step  int64
	found int // in that step
	// held is set once the trainer has taken the run, anew if this start begins a step anew in a run that it holds.
	held, anew bool
	reasons    map[uint64]string
	// losses counts how often the engine was lost since a step was done.
	losses int
}

// maxLosses bounds how often in a row the engine may be lost within a step.
const maxLosses = 3

// discardEngine has the trainer begin anew with an engine that has lost its processes; it returns an error after maxLosses losses in a row.
func (s *poisoned) discardEngine(ctx context.Context, err error, deps Deps) error {
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

// minPoisoned and poisonedShare bound the trajectories of a step that are refused for its faults: at most minPoisoned, or 1 in
// poisonedShare of the batch where that is more. Beyond that the machine or the weights are at fault.
const (
	minPoisoned   = 8
	poisonedShare = 4
)

// refuseTrajectory notes the trajectory that an error blames; it returns an error where trying the step again would not help.
func (s *poisoned) refuseTrajectory(err error, log *slog.Logger) error {
	var e *learner.TrajectoryError
	if !errors.As(err, &e) {
		return err
	}
	if s.step != e.Step {
		s.step, s.found = e.Step, 0
	}
	if _, again := s.reasons[e.Sequence]; again || s.found >= max(minPoisoned, e.Of/poisonedShare) {
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
