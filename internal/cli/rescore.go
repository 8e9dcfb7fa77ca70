package cli

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/rescore"
)

// rescoredFile is the file of rows in the run's folder.
const rescoredFile = "rescored.jsonl"

func newRescoreCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rescore [run or folder]", Short: "Score a run's kept trajectories by another reward", Args: cobra.MaximumNArgs(1),
		Long: `Rescore gives every trajectory that the run keeps the reward that the flags describe, and changes nothing of the run.
A row for each goes to rescored.jsonl in the run's folder, or to --out: the reward that it had and the reward that it
has now, with their components. The table compares both; "apart" counts the groups whose rewards differ, which are
the groups that teach. If it is interrupted, or the reward fails, the rows so far stay, and the same command goes on.

Every trajectory is kept where trainer.archive.messages.bytes is set; else the kept batches and the archive's samples
are. Neither the policy nor tools run again. A reward that reads more than a trajectory holds is refused by name.`,
		Example: "  weir rescore mine --tasks.library.reward.exact_match 1 --tasks.library.reward.answered 0\n" +
			"  weir rescore mine --config judge.yaml --out judged.jsonl",
	}
	out := cmd.Flags().String("out", "", "the file of the rows; "+rescoredFile+" in the run's folder by default")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := nameRun(cmd, args); err != nil {
			return err
		}
		r, err := a.openRecord(cmd)
		if err != nil {
			return err
		}
		defer r.folder.Close()
		scorer, err := r.OpenRescorer(cmd.Context())
		if err != nil {
			return err
		}
		to := cmp.Or(*out, filepath.Join(r.Config.Folder(), rescoredFile))
		n, err := rescore.Run(cmd.Context(), r.Config.Run.Name, r.folder, r.record, rescore.Options{
			File: to, Settings: scorer.Settings, At: scorer.At, Score: scorer.Rescore,
			Passes:  func(err error) bool { return errors.Is(err, assembly.ErrNotRescored) },
			Damaged: func(err error) { fmt.Fprintln(a.err, "passed over: "+report.Plain(err.Error())) },
		})
		if err = errors.Join(err, scorer.Close()); err != nil {
			if n.Added > 0 {
				fmt.Fprintf(a.err, "%d rows are in %s, and the same command goes on behind them\n", n.Before+n.Added, to)
			}
			return cmp.Or(interruptedError(cmd.Context(), errSaid), err)
		}
		return r.printRescored(to, n, format.isJSON())
	}
	return cmd
}

// printRescored prints the comparison of the rewards.
func (r *runRecord) printRescored(file string, n rescore.Counts, asJSON bool) error {
	all, err := rescore.Summarize(file)
	if err != nil {
		return err
	}
	if asJSON {
		err = r.printJSON(rescored{r.Config.Run.Name, file, n.Before, n.Added, n.Damaged, all})
	} else {
		r.printRescoredTable(file, n, all)
	}
	if err == nil && n.Damaged > 0 {
		err = fmt.Errorf("%d segments or batches are damaged, and the rows lack what they held: weir audit --verify names them", n.Damaged)
	}
	return err
}

// rescored is the JSON answer of weir rescore.
type rescored struct {
	Run     string `json:"run"`
	File    string `json:"file"`
	Before  int    `json:"before"`
	Added   int    `json:"added"`
	Damaged int    `json:"damaged"`
	// Sources are the comparisons by source; the last is of all.
	Sources []rescore.Summary `json:"sources"`
}

// printRescoredTable prints a line for each source, and a line for all.
func (r *runRecord) printRescoredTable(file string, n rescore.Counts, all []rescore.Summary) {
	w := table.NewWriter()
	w.SetOutputMirror(r.out)
	w.SetStyle(table.StyleLight)
	w.AppendHeader(table.Row{
		"task", "source", "trajectories", "changed", "reward was", "reward now", "groups", "apart was", "apart now", "other best",
	})
	for i, s := range all {
		row := table.Row{
			report.Plain(s.Task), report.Plain(s.Source), s.Trajectories, s.Changed, fmt.Sprintf("%.3f", s.Was), fmt.Sprintf("%.3f", s.Now),
			s.Groups, s.WasApart, s.NowApart, s.OtherBest,
		}
		if i == len(all)-1 {
			row[0] = "all"
		}
		w.AppendRow(row)
	}
	w.Render()
	fmt.Fprintf(r.out, "%d rows in %s, %d of them new\n", n.Before+n.Added, file, n.Added)
	if unscored := all[len(all)-1].Unscored; unscored > 0 {
		fmt.Fprintf(r.out, "%d of them have no reward now: their error says why\n", unscored)
	}
}
