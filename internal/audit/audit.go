// Package audit proves, from the record of a run's steps, what became of every trajectory: which step used it,
// none twice, none missing, none staler than the bound.
package audit

import (
	"fmt"
	"slices"

	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Report is what an audit found. The lists are empty when every promise held.
type Report struct {
	// Steps counts the optimizer's batches, Trained the trajectories in them, Baselines the greedy rollouts that those
	// were compared with, PassedOver the samples that the selection used up without training on them, Rejected those
	// refused or dropped.
	Steps      int64                `json:"steps"`
	Trained    int                  `json:"trained"`
	Baselines  int                  `json:"baselines"`
	PassedOver int                  `json:"passed_over"`
	Rejected   map[batch.Reason]int `json:"not_trained_on"`
	// Witnessed counts the messages that the witness saw, Pending those among them that a trainer would read again,
	// Unwitnessed the trajectories used that it did not see: they were purged before it came to them.
	Witnessed   int `json:"witnessed"`
	Pending     int `json:"pending"`
	Unwitnessed int `json:"unwitnessed"`
	// Gone counts the messages that the witness saw and that were lost with the broker's store before a trainer had ended
	// them: each was of a group whose prompt is issued again.
	Gone int `json:"gone"`
	// Twice are trajectories that entered two steps, or one step twice, and prompts of which two groups did.
	Twice []string `json:"twice"`
	// Lost are messages that a witness saw stored and that neither a step nor a refusal accounts for, and that
	// nobody will read again.
	Lost []string `json:"lost"`
	// Contradicted are messages of which the record says other things than the stream or the rejected ones.
	Contradicted []string `json:"contradicted"`
	// Stale are trajectories that were used further behind than the bound.
	Stale []string `json:"stale_over_bound"`
	// Skipped are prompts whose group neither ended nor is open.
	Skipped []uint64 `json:"prompts_skipped"`
	// Gaps are steps that the record misses.
	Gaps []int64 `json:"steps_missing"`
	// MaxStaleness is the greatest at use, in versions.
	MaxStaleness int64 `json:"max_staleness"`
}

// Err is nil when every promise held, else an error that counts what did not.
func (r *Report) Err() error {
	if len(r.Twice)+len(r.Lost)+len(r.Stale)+len(r.Skipped)+len(r.Gaps)+len(r.Contradicted) == 0 {
		return nil
	}
	return fmt.Errorf("audit: lost=%d twice=%d stale_over_bound=%d prompts_skipped=%d steps_missing=%d contradicted=%d",
		len(r.Lost), len(r.Twice), len(r.Stale), len(r.Skipped), len(r.Gaps), len(r.Contradicted))
}

// Faults are the promises that did not hold, one by one, for people.
func (r *Report) Faults() []string {
	out := slices.Concat(r.Twice, r.Stale, r.Lost, r.Contradicted)
	for _, c := range r.Skipped {
		out = append(out, fmt.Sprintf("prompt %d: its group neither ended nor is open", c))
	}
	for _, step := range r.Gaps {
		out = append(out, fmt.Sprintf("step %d: the record has another in its place", step))
	}
	return out
}

// place identifies one message.
type place struct {
	created  int64
	sequence uint64
}

// fate is what a record says of a message. A baseline is trained too, as is what was passed over: its step used it up.
type fate struct {
	trained bool
	id      string
	oldest  int64
}

// fates are what became of the messages that have stood at a place, by how often the stream had lost messages by then: one at
// most where it never did.
type fates map[place]map[int64]fate

func (f fates) put(at place, losses int64, end fate) {
	if f[at] == nil {
		f[at] = map[int64]fate{}
	}
	f[at][losses] = end
}

// of is what became of the trajectory id at a place; id is "" where nobody could read it. Of several messages that have
// stood there it is the one with that id.
func (f fates) of(at place, id string) (fate, bool) {
	for _, end := range f[at] {
		if len(f[at]) == 1 || end.id == id {
			return end, true
		}
	}
	return fate{}, false
}

// trained says whether any message that has stood at a place was used by a step.
func (f fates) trained(at place) bool {
	for _, end := range f[at] {
		if end.trained {
			return true
		}
	}
	return false
}

// Check audits the records of a run, in order. eta is the greatest staleness bound that was in force; witness,
// which may be nil, is what somebody else saw in the stream.
func Check(records []checkpoint.Record, eta int, witness *Witness) *Report {
	r := &Report{
		Rejected: map[batch.Reason]int{}, Twice: []string{}, Lost: []string{}, Contradicted: []string{}, Stale: []string{},
		Skipped: []uint64{}, Gaps: []int64{},
	}
	used := map[string]int64{}   // trajectory id -> step that trained on it
	ended := fates{}             // messages that a step or a refusal accounts for
	cursors := map[uint64]bool{} // prompts whose group ended for good or is open
	groups := map[uint64]string{}
	for i := range records {
		rec := &records[i]
		if rec.Step != int64(i) {
			r.Gaps = append(r.Gaps, int64(i))
		}
		r.step(rec, eta, used, ended, cursors)
		r.prompts(rec, groups)
	}
	if len(records) > 0 {
		last := &records[len(records)-1]
		r.Steps = last.Step
		for _, g := range last.Open {
			if c, _, ok := batch.ParseGroupID(g); ok {
				cursors[c] = true
			}
		}
		for _, a := range last.Again {
			cursors[a.Cursor] = true
		}
		for c := range last.NextCursor {
			if !cursors[c] {
				r.Skipped = append(r.Skipped, c)
			}
		}
	}
	if witness != nil {
		r.witnessed(witness, ended)
	}
	return r
}

// prompts finds the prompts of which two groups were trained on.
func (r *Report) prompts(rec *checkpoint.Record, groups map[uint64]string) {
	for _, g := range rec.Groups {
		c, _, ok := batch.ParseGroupID(g.Group)
		if !ok {
			continue
		}
		if before, twice := groups[c]; twice {
			r.Twice = append(r.Twice, fmt.Sprintf("prompt %d by groups %s and %s", c, before, g.Group))
		}
		groups[c] = g.Group
	}
}

// step takes one record.
func (r *Report) step(rec *checkpoint.Record, eta int, used map[string]int64, ended fates, cursors map[uint64]bool) {
	for _, g := range rec.Groups {
		if c, _, ok := batch.ParseGroupID(g.Group); ok {
			cursors[c] = true
		}
		for _, m := range g.Members {
			if m.PassedOver {
				r.PassedOver++
			} else {
				r.Trained++
			}
		}
		if g.Baseline != nil {
			r.Baselines++
		}
		for _, m := range g.Used() {
			if step, twice := used[m.ID]; twice {
				r.Twice = append(r.Twice, fmt.Sprintf("%s in steps %d and %d", m.ID, step, rec.Step))
			}
			used[m.ID] = rec.Step
			at := place{rec.Created.UnixNano(), m.Sequence}
			if before, twice := ended[at][rec.Losses]; twice {
				r.Twice = append(r.Twice, fmt.Sprintf("sequence %d as %s and as %s", m.Sequence, before.id, m.ID))
			}
			ended.put(at, rec.Losses, fate{trained: true, id: m.ID, oldest: m.Oldest})
			stale := rec.Step - 1 - m.Oldest
			r.MaxStaleness = max(r.MaxStaleness, stale)
			if stale > int64(eta) {
				r.Stale = append(r.Stale, fmt.Sprintf("%s in step %d: %d versions behind, bound %d", m.ID, rec.Step, stale, eta))
			}
		}
	}
	for _, m := range rec.Rejected {
		created, losses := rec.Created, rec.Losses
		if m.Created != nil && m.Losses != nil {
			created, losses = *m.Created, *m.Losses
		}
		at := place{created.UnixNano(), m.Sequence}
		if ended[at][losses].trained {
			r.Contradicted = append(r.Contradicted, fmt.Sprintf("sequence %d was trained on and then refused as %s", m.Sequence, m.Reason))
		} else {
			ended.put(at, losses, fate{id: m.ID})
		}
		r.Rejected[m.Reason]++
	}
	for _, d := range rec.Dropped {
		if !d.Reissue {
			cursors[d.Cursor] = true
		}
	}
}
