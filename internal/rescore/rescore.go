package rescore

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/producers"
)

// Row is a trajectory with the reward that it had and the reward that it has now.
type Row struct {
	ID       string `json:"id"`
	Sequence uint64 `json:"sequence"`
	Group    string `json:"group"`
	Task     string `json:"task"`
	Source   string `json:"source"`
	Prompt   string `json:"prompt"`
	// Fate is what became of it in the run, Step the step that used it up or noted its end; null where the record has neither.
	Fate string `json:"fate,omitempty"`
	Step *int64 `json:"step"`
	// Was is the reward that it had, WasRewards its components.
	Was        float64            `json:"was"`
	WasRewards map[string]float64 `json:"was_rewards"`
	// Reward is the reward that it has now; null where Error says why there is none.
	Reward  *float64           `json:"reward"`
	Rewards map[string]float64 `json:"rewards,omitempty"`
	// Turns are rewards of single turns, Agents those of single agents; absent where the reward gives none.
	Turns  []float64          `json:"turns,omitempty"`
	Agents map[string]float64 `json:"agents,omitempty"`
	Error  string             `json:"error,omitempty"`
}

// Options say how a run is scored again.
type Options struct {
	// File takes the rows. A file of the same rewards is gone on with.
	File string
	// Settings are the keys of the rewards with their values; the file begins with them.
	Settings map[string]string
	// At is how many trajectories are scored at once, >= 1.
	At int
	// Score scores a trajectory. An error for which Passes is true is written into the trajectory's row; another ends the scoring.
	Score  func(ctx context.Context, t *runfolder.Kept) (producers.Score, error)
	Passes func(error) bool
	// Damaged is called with each segment or batch that is passed over.
	Damaged func(error)
}

// Run scores every trajectory that a run's folder keeps and the file lacks. An error leaves the rows that were written before it: the same
// call goes on behind them.
func Run(ctx context.Context, run string, folder *runfolder.Folder, record runfolder.Record, o Options) (n Counts, err error) {
	verdicts, err := record.Verdicts()
	if err != nil {
		return n, err
	}
	file, err := openFile(o.File, header{run, o.Settings})
	if err != nil {
		return n, err
	}
	defer func() { err = errors.Join(err, file.close()) }()
	n.Before = len(file.has)
	var waiting []*runfolder.Kept
	scoreWaiting := func() error {
		added, err := o.scoreAll(ctx, file, waiting, verdicts)
		n.Added += added
		waiting = waiting[:0]
		return err
	}
	for k, err := range folder.AllKept(record) {
		switch {
		case ctx.Err() != nil:
			return n, context.Cause(ctx)
		case errors.Is(err, runfolder.ErrTwoRuns):
			return n, err
		case err != nil:
			n.Damaged++
			o.Damaged(err)
			continue
		case file.has[runfolder.Name{ID: k.ID, Sequence: k.Sequence}]:
			continue
		}
		if waiting = append(waiting, k); len(waiting) == o.At {
			if err := scoreWaiting(); err != nil {
				return n, err
			}
		}
	}
	return n, scoreWaiting()
}

// Counts counts the rows.
type Counts struct {
	// Before were in the file already, Added were added to it.
	Before, Added int
	// Damaged counts the segments and batches that were passed over.
	Damaged int
}

// scoreAll scores some trajectories at once, and writes the rows before the first failure in their order.
func (o Options) scoreAll(
	ctx context.Context, file *file, all []*runfolder.Kept, verdicts map[runfolder.Name]runfolder.Verdict,
) (int, error) {
	rows, faults := make([]Row, len(all)), make([]error, len(all))
	var group errgroup.Group
	for i, k := range all {
		group.Go(func() error {
			rows[i], faults[i] = o.newRow(ctx, k)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	for i, k := range all {
		if faults[i] != nil {
			return i, faults[i]
		}
		if v, known := verdicts[runfolder.Name{ID: k.ID, Sequence: k.Sequence}]; known {
			rows[i].Fate, rows[i].Step = v.Fate.String(), &v.Step
		}
		if err := file.write(&rows[i]); err != nil {
			return i, err
		}
	}
	return len(all), nil
}

// newRow scores a trajectory.
func (o Options) newRow(ctx context.Context, k *runfolder.Kept) (Row, error) {
	row := Row{
		ID: k.ID, Sequence: k.Sequence, Group: k.Group, Task: k.Task, Source: k.Source, Prompt: k.PromptID, Was: k.Reward, WasRewards: k.Rewards,
	}
	score, err := o.Score(ctx, k)
	switch {
	case err != nil && o.Passes(err):
		row.Error = err.Error()
	case err != nil:
		return row, err
	default:
		row.Reward, row.Rewards, row.Turns, row.Agents = &score.Total, score.Components, score.Turns, score.Agents
	}
	return row, nil
}
