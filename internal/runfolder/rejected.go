package runfolder

import (
	"context"
	"iter"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// Refused is a message of REJECTED.
type Refused struct {
	Verdict
	// Trajectory is nil where the message is no trajectory that can be read.
	Trajectory *schemas.Trajectory
}

// RejectedTrajectories goes through REJECTED. A message that is no trajectory has only its sequence, reason and detail.
func RejectedTrajectories(ctx context.Context, run *streams.Run) iter.Seq2[Refused, error] {
	return func(yield func(Refused, error) bool) {
		for m, err := range run.Rejected(ctx) {
			if err != nil {
				yield(Refused{}, err)
				return
			}
			r := Refused{Verdict: Verdict{Fate: FateRefused, Step: -1, Sequence: m.Original, Oldest: -1, Newest: -1, Reason: m.Reason, Detail: m.Detail}}
			t := new(schemas.Trajectory)
			if kind, _, err := schemas.Peek(m.Data); err == nil && kind == schemas.KindTrajectory && schemas.Unmarshal(m.Data, t) == nil {
				r.Trajectory, r.ID, r.Group = t, t.ID, t.Group
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}
