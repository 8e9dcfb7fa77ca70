package trainer

import (
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/batch"
)

// Ending is the end of a trajectory: trained on, refused or dropped.
type Ending struct {
	Trajectory *schemas.Trajectory
	// Issued is the time of its ticket, and Came when the trainer read it; zero where that is not known, as after a restart.
	Issued, Came time.Time
	// Batched is when the batch of the step that used it was complete, zero where no step used it; Ended is when its end was decided.
	Batched, Ended time.Time
	// Step is the step that used it, or the step in hand when it was refused or dropped.
	Step int64
	// Reason is why it was not trained on; "" where the step used it.
	Reason schemas.Reason
}

// reportRejected reports a trajectory that was not trained on.
func (d Deps) reportRejected(t *schemas.Trajectory, from archive.Origin, step int64, reason schemas.Reason) {
	if d.Ended != nil && t != nil {
		d.Ended(Ending{Trajectory: t, Issued: from.Issued, Came: from.Came, Ended: d.Now(), Step: step, Reason: reason})
	}
}

// reportTrained reports the trajectories that a step used up; batched is when its batch was complete.
func (d Deps) reportTrained(b *batch.Batch, originOf func(sequence uint64) archive.Origin, batched time.Time, step int64) {
	if d.Ended == nil || b == nil {
		return
	}
	now := d.Now()
	tell := func(m *batch.Member) {
		at := originOf(m.Sequence)
		d.Ended(Ending{Trajectory: m.Trajectory, Issued: at.Issued, Came: at.Came, Batched: batched, Ended: now, Step: step})
	}
	for _, g := range b.Groups {
		for i := range g.Members {
			tell(&g.Members[i])
		}
		if g.Baseline != nil {
			tell(g.Baseline)
		}
	}
}
