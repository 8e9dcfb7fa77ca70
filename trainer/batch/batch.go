package batch

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// Batch is the groups that a step trains on.
type Batch struct {
	// Version is the trainer's version when the batch was taken.
	Version int64
	// Groups in the order of issue.
	Groups []Taken
	// Use counts the steps that train on the groups, up to this step; 0 is the first too.
	Use int
}

// Uses counts the steps that train on the groups, up to this step: 1 for groups that no step has trained on before.
func (b *Batch) Uses() int { return max(1, b.Use) }

// Taken is a group of a batch.
type Taken struct {
	Group
	// Members by sample, also members that are passed over.
	Members []Member
	// Baseline is the greedy rollout of the same prompt; nil for a group without a baseline.
	Baseline *Member
	markers  []schemas.Delivery
}

// Used are the members, then the baseline: every trajectory that the step uses up.
func (t *Taken) Used() []Member {
	if t.Baseline == nil {
		return t.Members
	}
	return append(slices.Clip(t.Members), *t.Baseline)
}

// Trajectories counts the members that are trained on.
func (b *Batch) Trajectories() int {
	n := 0
	for _, g := range b.Groups {
		for _, m := range g.Members {
			if !m.PassedOver {
				n++
			}
		}
	}
	return n
}

// Deliveries are the batch's trajectories, baselines included, as they were delivered, in its order; none for a nil
// batch.
func (b *Batch) Deliveries() []schemas.Delivery {
	if b == nil {
		return nil
	}
	var out []schemas.Delivery
	for _, g := range b.Groups {
		for _, m := range g.Used() {
			out = append(out, schemas.Delivery{Sequence: m.Sequence, Trajectory: m.Trajectory})
		}
	}
	return out
}

// Take removes the oldest ready groups as a batch; nil when there are not enough. The batch must be committed
// before another is taken.
//
// Invariant: with Wait no trajectory becomes too old, if its tokens are of versions that its ticket allows and its group is awaited.
// Invariant: a batch never holds a trajectory whose oldest token is more than eta versions behind.
func (a *Assembler) Take() (*Batch, error) {
	if a.taken != nil {
		return nil, fmt.Errorf("take a batch: the one of version %d is not committed", a.taken.Version)
	}
	a.blocking = ""
	due := a.ready >= a.cfg.Groups*(1+a.cfg.Hold)
	if a.cfg.Rows > 0 {
		due = a.readyRows >= a.cfg.Rows && (a.ready == len(a.order) || a.cfg.Eta > 0)
	}
	if !due && !a.isShortDue() {
		return nil, nil
	}
	if g := a.findBlocking(); due && g != nil {
		a.blocking = g.ID()
		return nil, nil
	}
	b := &Batch{Version: a.version}
	var taken []*openGroup
	rows := 0
	for _, g := range a.order {
		if g.ready && !a.isBatchFull(len(taken), rows) {
			b.Groups = append(b.Groups, Taken{Group: g.Group, Members: g.chosen, Baseline: g.greedyMember(), markers: g.markers})
			taken, rows = append(taken, g), rows+g.rows
		}
	}
	a.flat = 0
	for _, g := range taken {
		a.closeGroup(g)
		delete(a.attempts, g.Cursor)
	}
	a.taken = b
	return b, nil
}

// isBatchFull reports whether a batch of these groups, with this many rows, is complete. With Eta 0 the other groups could not be used
// later: all are taken.
func (a *Assembler) isBatchFull(groups, rows int) bool {
	if a.cfg.Rows > 0 {
		return rows >= a.cfg.Rows && a.cfg.Eta > 0
	}
	return groups >= a.cfg.Groups
}

// trainedRows counts the segments of members that would be trained on.
func trainedRows(members []Member) int {
	n := 0
	for _, m := range members {
		for i := range m.Trajectory.Segments {
			if !m.PassedOver && slices.Contains(m.Trajectory.Segments[i].ActionMask, 1) {
				n++
			}
		}
	}
	return n
}

// Gathered returns how many rows the ready groups have, how many groups that took, including the groups that Keep has dropped since the
// last batch, and whether no other group is open.
func (a *Assembler) Gathered() (rows, groups int, all bool) {
	return a.readyRows, a.flat + a.ready, a.ready == len(a.order)
}

// isShortDue reports whether a batch of fewer groups is due: at least one group is ready, and Keep dropped MaxFlat others, or no other
// group is to come.
func (a *Assembler) isShortDue() bool {
	if a.last && a.ready > 0 && a.ready == len(a.order) {
		return true
	}
	return a.cfg.MaxFlat > 0 && a.flat >= a.cfg.MaxFlat && a.ready > 0
}

// Flat counts the groups that Keep has dropped since the last batch.
func (a *Assembler) Flat() int { return a.flat }

// Commit ends the taken batch: its members are trained on, against its baselines, or passed over.
func (a *Assembler) Commit() Effects {
	var e Effects
	for _, g := range a.taken.Groups {
		for _, m := range g.Used() {
			e.Verdicts = append(e.Verdicts, Verdict{Sequence: m.Sequence, ID: m.Trajectory.ID, State: Trained})
		}
		for _, m := range g.markers {
			e.addSettled(m.Sequence)
		}
	}
	a.taken = nil
	a.recordVerdicts(e)
	return e
}

// Ledger lists the messages that have ended so far. Every other delivered message is pending and must be read again by a trainer that
// starts from here.
func (a *Assembler) Ledger() Ledger { return a.ledger.compactMarks() }

// Carry lists the pending messages, by sequence, and marks them as not to be read from the stream again: the caller keeps them, and adds
// them to the Assembler that goes on from the ledger before any other message. It must not be called while a batch is taken.
func (a *Assembler) Carry() []schemas.Delivery {
	a.ledger.carryPending()
	return a.Carried()
}

// Carried lists the carried messages that have not ended, by sequence.
func (a *Assembler) Carried() []schemas.Delivery {
	var out []schemas.Delivery
	for _, g := range a.order {
		for _, m := range g.members {
			out = append(out, schemas.Delivery{Sequence: m.Sequence, Trajectory: m.Trajectory})
		}
		out = append(out, g.markers...)
	}
	out = append(out, a.early...)
	out = slices.DeleteFunc(out, func(d schemas.Delivery) bool {
		_, carried := a.ledger.carried[d.Sequence]
		return !carried
	})
	slices.SortFunc(out, func(x, y schemas.Delivery) int { return cmp.Compare(x.Sequence, y.Sequence) })
	return out
}

// Unfillable are the groups whose rollouts are wasted work: the open groups that can no longer get enough usable samples, and the groups
// that the last Advance dropped.
func (a *Assembler) Unfillable() []string {
	ids := slices.Clone(a.abandoned)
	for _, g := range a.order {
		if !g.ready && !g.isComplete() && a.isUnfillable(g) {
			ids = append(ids, g.ID())
		}
	}
	return ids
}

// isUnfillable reports whether a group can no longer get enough usable samples, or no longer its baseline.
func (a *Assembler) isUnfillable(g *openGroup) bool {
	samples, baseline := 0, false
	for s := range g.Size {
		m, came := g.members[s]
		if g.cancelled[s] || came && a.version-m.Oldest > int64(a.cfg.Eta) {
			continue
		}
		if g.Greedy(s) {
			baseline = true
		} else {
			samples++
		}
	}
	return samples < a.cfg.MinGroup || a.cfg.Baseline && !baseline
}

// Counts are how many groups are open and not ready, how many are ready, how many messages are kept for groups
// yet to be issued.
func (a *Assembler) Counts() (waiting, ready, early int) {
	return len(a.order) - a.ready, a.ready, len(a.early)
}
