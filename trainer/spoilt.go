package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/stats"
)

// rowError is a fault in one row of a batch.
type rowError struct {
	row int
	err error
}

func (e *rowError) Error() string { return e.err.Error() }
func (e *rowError) Unwrap() error { return e.err }

// inRows says which row of the batch an error is of that names one of some of its rows, unless that is said already.
func inRows(err error, of []int) error {
	var said *rowError
	var fault *stats.BatchError
	if errors.As(err, &said) || !errors.As(err, &fault) || fault.Row < 0 || fault.Row >= len(of) {
		return err
	}
	return &rowError{of[fault.Row], err}
}

// spoiltError is a fault of a step that lies in one trajectory of its batch.
type spoiltError struct {
	step int64
	// of is how many trajectories the batch has.
	of       int
	sequence uint64
	id       string
	err      error
}

func (e *spoiltError) Error() string { return fmt.Sprintf("trajectory %s: %s", e.id, e.err) }
func (e *spoiltError) Unwrap() error { return e.err }

// blame finds the trajectory in which the fault of a step lies; an error that names no row is returned as it is.
func (t *trainer) blame(ctx context.Context, err error, b *batch.Batch, rows *batch.Rows) error {
	if err = inRows(err, rows.All()); err == nil || ctx.Err() != nil {
		return err
	}
	var at *rowError
	if !errors.As(err, &at) {
		return err
	}
	n := 0
	for _, g := range b.Groups {
		for _, m := range g.Members {
			if m.PassedOver {
				continue
			}
			if n == rows.Trajectory[at.row] {
				return &spoiltError{step: t.step + 1, of: b.Trajectories(), sequence: m.Sequence, id: m.Trajectory.ID, err: err}
			}
			n++
		}
	}
	return err
}

// spoilt are the trajectories that were found to spoil a step, by sequence, with why. A step in which that happens is begun
// anew from the checkpoint, and they are refused when they are read again: as if that had been known when they came. A trainer
// that is killed in between finds them again, since the same batch has the same fault.
type spoilt struct {
	step  int64
	found int // in that step
	// anew says that this start begins a step anew in a run that the trainer holds.
	anew    bool
	reasons map[uint64]string
}

// leastSpoilt and shareSpoilt bound the trajectories of one step that are refused for its faults, to so many or to one in so
// many of the batch: beyond that the fault is the machine's, or the weights'.
const (
	leastSpoilt = 8
	shareSpoilt = 4
)

// refuse notes the trajectory that an error blames; it returns an error where another try of the step is no use.
func (s *spoilt) refuse(err error, log *slog.Logger) error {
	var e *spoiltError
	if !errors.As(err, &e) {
		return err
	}
	if s.step != e.step {
		s.step, s.found = e.step, 0
	}
	if _, again := s.reasons[e.sequence]; again || s.found >= max(leastSpoilt, e.of/shareSpoilt) {
		return fmt.Errorf("%d trajectories of one step were refused for its faults: the machine or the weights may be at fault: %w", s.found, err)
	}
	s.found++
	s.anew = true
	s.reasons[e.sequence] = "it spoils the step: " + e.err.Error()
	if log != nil {
		log.Warn("a trajectory spoils the step: it is refused, and the step begun anew", "step", e.step, "trajectory", e.id, "err", e.err)
	}
	return nil
}
