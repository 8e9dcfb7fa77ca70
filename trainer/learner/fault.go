package learner

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/stats"
)

// TrajectoryError is a fault of a step that lies in a single trajectory of its batch.
type TrajectoryError struct {
	// Step is the step that failed, 1 the run's first.
	Step int64
	// Of is how many trajectories the batch has.
	Of int
	// Sequence and ID name the trajectory.
	Sequence uint64
	ID       string
	Err      error
}

// Error names the trajectory.
func (e *TrajectoryError) Error() string { return fmt.Sprintf("trajectory %s: %s", e.ID, e.Err) }

// Unwrap is the fault.
func (e *TrajectoryError) Unwrap() error { return e.Err }

// rowError is a fault in a row of a batch.
type rowError struct {
	row int
	err error
}

func (e *rowError) Error() string { return e.err.Error() }
func (e *rowError) Unwrap() error { return e.err }

// inBatchRows translates the row of an error about some rows of a batch to a row of the whole batch, unless an inner call of inBatchRows
// has done so.
func inBatchRows(err error, of []int) error {
	var translated *rowError
	var fault *stats.BatchError
	if errors.As(err, &translated) || !errors.As(err, &fault) || fault.Row < 0 || fault.Row >= len(of) {
		return err
	}
	return &rowError{of[fault.Row], err}
}

// findTrajectory finds the trajectory in which the fault of a step lies; an error without a row is returned unchanged.
func findTrajectory(ctx context.Context, err error, b *batch.Batch, rows *batch.Rows) error {
	if err = inBatchRows(err, rows.All()); err == nil || ctx.Err() != nil {
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
				return &TrajectoryError{Step: b.Version + 1, Of: b.Trajectories(), Sequence: m.Sequence, ID: m.Trajectory.ID, Err: err}
			}
			n++
		}
	}
	return err
}
