package shadow

import (
	"fmt"
	"slices"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/relearn"
)

// admitted is what a shadow makes of the trajectories that a step of the run used up.
type admitted struct {
	// batch is trained on; nil where nothing is left.
	batch    *batch.Batch
	rejected []checkpoint.RecordRejection
	dropped  []checkpoint.RecordDrop
}

// admitBatch judges the trajectories of a step of the run by an assembler under the shadow's own bounds and selection. kept are the
// deliveries of [checkpoint.ReadBatch].
//
// Invariant: a shadow's batch never holds a trajectory whose oldest token is more than the shadow's eta behind the version that the step
// began with.
func (c Config) admitBatch(r *checkpoint.Record, kept []schemas.Delivery) (*admitted, error) {
	was, err := relearn.NewBatch(c.Config, r, kept)
	if err != nil {
		return nil, err
	}
	// An assembler takes batches of a number of groups, which is known once each group is judged.
	for groups := len(was.Groups); ; {
		a, effects := c.assembleBatch(was, groups)
		b, err := a.Take()
		if err != nil {
			return nil, err
		}
		ready := len(effects.Ready)
		if b == nil && ready > 0 && ready < groups {
			groups = ready
			continue
		}
		if b == nil && ready > 0 {
			return nil, fmt.Errorf("batch of step %d: %d of %d groups are ready and make no batch", r.Step, ready, len(was.Groups))
		}
		out := &admitted{batch: b}
		out.noteEffects(effects)
		out.nameDropped(r)
		return out, nil
	}
}

// assembleBatch gives an assembler for batches of this many groups the groups of a batch of the run.
func (c Config) assembleBatch(was *batch.Batch, groups int) (*batch.Assembler, batch.Effects) {
	var all batch.Effects
	add := func(e batch.Effects) {
		all.Verdicts, all.Ready, all.Drops = append(all.Verdicts, e.Verdicts...), append(all.Ready, e.Ready...), append(all.Drops, e.Drops...)
	}
	run := ""
	if used := was.Deliveries(); len(used) > 0 {
		run = used[0].Trajectory.Run // a fork has kept batches of its parent
	}
	a := batch.New(batch.Config{
		Run: run, Groups: groups, MinGroup: c.MinGroup, Baseline: c.Baseline(), Values: c.StateValues(), Eta: c.Eta,
		Choose: c.Choose, Keep: c.Keep, EpisodeAgents: c.EpisodeAgents(), Shape: c.Shape,
	}, batch.Start{Version: was.Version})
	for i := range was.Groups {
		g := &was.Groups[i]
		as := g.Group
		as.Index, as.Trunks = uint64(i), c.Trunks
		absent := map[int]bool{}
		for s := range as.Size {
			absent[s] = true
		}
		for _, m := range g.Used() {
			delete(absent, m.Trajectory.Sample)
		}
		add(a.Open(as))
		var samples []int
		for s := range as.Size {
			if absent[s] {
				samples = append(samples, s)
			}
		}
		if len(samples) > 0 {
			a.Refuse([]batch.Refused{{Group: as.ID(), Samples: samples}})
		}
		for _, m := range g.Used() {
			add(a.Add(schemas.Delivery{Sequence: m.Sequence, Trajectory: m.Trajectory}))
		}
	}
	return a, all
}

// noteEffects notes what the assembler refused and dropped.
func (a *admitted) noteEffects(e batch.Effects) {
	for _, v := range e.Verdicts {
		if v.State == batch.Rejected {
			a.rejected = append(a.rejected, checkpoint.RecordRejection{ID: v.ID, Sequence: v.Sequence, Reason: v.Reason})
		}
	}
	for _, d := range e.Drops {
		a.dropped = append(a.dropped, checkpoint.RecordDrop{
			Group: d.Group.ID(), Cursor: d.Group.Cursor, Reason: d.Reason, Size: d.Group.Size,
		})
	}
}

// nameDropped gives the dropped groups the prompts that the run's record has of them.
func (a *admitted) nameDropped(r *checkpoint.Record) {
	for i := range a.dropped {
		if was := groupIn(r, a.dropped[i].Group); was != nil {
			a.dropped[i].Source, a.dropped[i].Task, a.dropped[i].Prompt = was.Source, was.Task, was.Prompt
		}
	}
}

// groupIn is a group of a line of the run's record; nil where the line has none of that id.
func groupIn(r *checkpoint.Record, id string) *checkpoint.RecordGroup {
	for i := range r.Groups {
		if r.Groups[i].Group == id {
			return &r.Groups[i]
		}
	}
	return nil
}

// trainedGroups are the groups of the shadow's batch in the form of a record, with the prompts that the run's record has of them.
func (l *learntStep) trainedGroups() []checkpoint.RecordGroup {
	out := checkpoint.RecordBatch(l.batch, l.stats.Advantages)
	for i := range out {
		if was := groupIn(l.line, out[i].Group); was != nil {
			out[i].Source, out[i].Task, out[i].Prompt = was.Source, was.Task, was.Prompt
		}
	}
	return out
}

// openAgain are the prompts that a run forked from the shadow would issue again after a step.
func openAgain(r *checkpoint.Record) []checkpoint.Again {
	out := slices.Clone(r.Again)
	for _, id := range r.Open {
		if cursor, attempt, ok := batch.ParseGroupID(id); ok {
			out = append(out, checkpoint.Again{Cursor: cursor, Attempt: attempt})
		}
	}
	return out
}
