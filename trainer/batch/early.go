package batch

import (
	"fmt"
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// isFuture reports whether a group may still be issued.
func (a *Assembler) isFuture(cursor uint64, attempt int) bool {
	if cursor >= a.next {
		return cursor-a.next < a.cfg.Horizon
	}
	last, open := a.attempts[cursor]
	return open && attempt > last
}

// keepEarly keeps a message of a group yet to be issued; a trajectory is kept once.
func (a *Assembler) keepEarly(d schemas.Delivery, e *Effects) {
	id := ""
	if d.Trajectory != nil {
		id = d.Trajectory.ID
	}
	switch {
	case id != "" && a.kept[id]:
		e.addRejected(d.Sequence, id, schemas.ReasonDuplicate, "the sample was delivered before")
		return
	case a.cfg.MaxEarly > 0 && len(a.early) >= a.cfg.MaxEarly:
		e.addRejected(d.Sequence, id, schemas.ReasonForeign, fmt.Sprintf("its group is yet to be issued, as are those of %d messages that are kept", len(a.early)))
		return
	case id != "":
		a.kept[id] = true
	}
	a.early = append(a.early, d)
}

// takeEarly removes from the early messages those for which where is true, and returns them.
func (a *Assembler) takeEarly(where func(schemas.Delivery) bool) (out []schemas.Delivery) {
	a.early = slices.DeleteFunc(a.early, func(d schemas.Delivery) bool {
		if !where(d) {
			return false
		}
		if d.Trajectory != nil {
			delete(a.kept, d.Trajectory.ID)
		}
		out = append(out, d)
		return true
	})
	return out
}

// expireEarly refuses the messages whose group was not issued while they could be used.
func (a *Assembler) expireEarly(e *Effects) {
	for _, d := range a.takeEarly(func(d schemas.Delivery) bool {
		return d.Trajectory != nil && a.version-d.Trajectory.OldestVersion() > int64(a.cfg.Eta)
	}) {
		e.addRejected(d.Sequence, d.Trajectory.ID, schemas.ReasonStale, "its group was not issued again in time")
	}
}
