package view

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/internal/runfolder"
)

// Picked are three rollouts as examples; nil where none is kept. Best and Worst have the highest and the lowest reward of the newest step,
// Newest is the last of it besides.
type Picked struct {
	Step   int64   `json:"step"`
	Best   *Detail `json:"best"`
	Worst  *Detail `json:"worst"`
	Newest *Detail `json:"newest"`
}

// pickedRows is how many of the newest trajectories the three are chosen from.
const pickedRows = 256

// pickRollouts chooses three rollouts whose text is at hand.
func (f *shownRun) pickRollouts(ctx context.Context) (*Picked, error) {
	newest := f.folder.Steps.List(runfolder.Query{Step: -1, Limit: pickedRows}, f.folder.GroupSize()).Rows
	p := &Picked{Step: -1}
	rows := newestStep(newest)
	if len(rows) == 0 {
		return p, nil
	}
	p.Step = int64(rows[0].Step)
	best, worst := &rows[0], &rows[0]
	for i := range rows {
		if rows[i].Reward > best.Reward {
			best = &rows[i]
		}
		if rows[i].Reward < worst.Reward {
			worst = &rows[i]
		}
	}
	var faults [3]error
	p.Best, faults[0] = f.readPicked(ctx, best.ID)
	p.Worst, faults[1] = f.readPicked(ctx, worst.ID)
	if other := otherRow(rows, best, worst); other != nil {
		p.Newest, faults[2] = f.readPicked(ctx, other.ID)
	}
	return p, errors.Join(faults[:]...)
}

// otherRow is the newest row that is neither, of another group where there is one; nil where there is none.
func otherRow(rows []runfolder.Listed, best, worst *runfolder.Listed) *runfolder.Listed {
	var found *runfolder.Listed
	for i := range rows {
		r := &rows[i]
		switch {
		case r.ID == best.ID || r.ID == worst.ID:
		case r.Group != best.Group && r.Group != worst.Group:
			return r
		case found == nil:
			found = r
		}
	}
	return found
}

// newestStep are the rows that the newest step with any trained on, newest first.
func newestStep(rows []runfolder.Listed) []runfolder.Listed {
	var out []runfolder.Listed
	for i := range rows {
		r := &rows[i]
		if r.Rewarded && (len(out) == 0 || r.Step == out[0].Step) {
			out = append(out, *r)
		}
	}
	return out
}

// readPicked reads a rollout without its tokens' numbers; nil where its text is not kept.
func (f *shownRun) readPicked(ctx context.Context, id string) (*Detail, error) {
	d, err := f.readDetail(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read trajectory %s: %w", id, err)
	}
	if d.Trajectory == nil {
		return nil, nil
	}
	return d, nil
}
