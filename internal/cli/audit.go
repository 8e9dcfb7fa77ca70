package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

func newAuditCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit [run or folder]", Short: "Prove from the record what became of every trajectory", Args: cobra.MaximumNArgs(1),
		Long: `Audit reads the record that the trainer writes with each checkpoint and checks that no trajectory entered two
steps (or more than trainer.reuse), no prompt was skipped, no step is missing, no line was changed, and nothing was
used further behind than the
bound. Of each kind of fault it names the first twenty and counts the others. With --step it lists the exact batch of
one step, and with --text it prints every rollout of it to be read; weir trajectory prints one.

The rollouts themselves are in <trainer.checkpoint.dir>/batches, for as many of the newest steps as
trainer.checkpoint.batches says. The record of an older step still lists its trajectories; their text is gone.

With --verify every byte that the folder keeps of the run is read and held against the hashes that were written with
it: each line of the record, kept batch, checkpoint and segment of the archive. What differs is named with its step,
the wanted and the found hash. Where the trainer has a key it signs the record at each step, and the signatures are
checked too.`,
		Example: "  weir audit\n  weir audit --verify mine\n" +
			"  weir audit --step 12\n  weir audit --step 12 --text\n  weir audit --step 12 --text -o json",
	}
	step := cmd.Flags().Int64("step", -1, "print the batch of this step")
	text := cmd.Flags().Bool("text", false, "with --step: print each rollout as text, and with -o json whole, tokens and all")
	verify := cmd.Flags().Bool("verify", false, "read every byte that is kept and compare it with its hash")
	format := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *text && *step < 0:
			return fault.Usage(errors.New("--text: give the step to print with --step"))
		case *verify && *step >= 0:
			return fault.Usagef("--verify and --step: want either: all that is kept is verified")
		}
		if err := nameRun(cmd, args); err != nil {
			return err
		}
		open := a.openRecord
		if *verify {
			open = a.openStore
		}
		r, err := open(cmd)
		if err != nil {
			return err
		}
		if *verify {
			return r.printVerification(format.isJSON())
		}
		if *step < 0 {
			return r.printAudit(format.isJSON())
		}
		rec, err := r.stepRecord(*step)
		if err != nil {
			return err
		}
		if len(usedVerdicts(rec)) == 0 && !format.isJSON() {
			fmt.Fprintf(r.out, "step %d trained on nothing: it is the start\n", rec.Step)
			return nil
		}
		// --json came before --text and means both.
		if *text || cmd.Flags().Changed("json") && format.isJSON() {
			return r.printBatch(rec, format.isJSON())
		}
		return r.listVerdicts(withoutTrajectories(usedVerdicts(rec)), format.isJSON())
	}
	return cmd
}

// audited is the JSON answer of weir audit.
type audited struct {
	Run   string `json:"run"`
	Bound int    `json:"bound"`
	OK    bool   `json:"ok"`
	*audit.Report
}

// printAudit checks the record of the run and prints the result.
func (r *runRecord) printAudit(asJSON bool) error {
	eta, reuse := r.Config.Trainer.Eta, r.Config.Trainer.Reuse
	found, err := audit.ReadStore(r.record.Dir, audit.Bounds{Eta: eta, Reuse: reuse}, nil)
	if err != nil {
		return err
	}
	if asJSON {
		return errors.Join(r.printJSON(audited{r.Config.Run.Name, eta, found.Err() == nil, found}), found.Err())
	}
	fmt.Fprintf(r.out, "steps %d, trajectories trained on %d, most versions behind %d (bound %d)\n",
		found.Steps, found.Trained, found.MaxStaleness, eta)
	if found.Again > 0 {
		fmt.Fprintf(r.out, "trained on again %d (at most %d steps each)\n", found.Again, reuse)
	}
	if found.Baselines > 0 {
		fmt.Fprintf(r.out, "greedy rollouts used as baselines %d\n", found.Baselines)
	}
	if found.PassedOver > 0 {
		fmt.Fprintf(r.out, "samples passed over for others of their group %d\n", found.PassedOver)
	}
	for _, reason := range slices.Sorted(maps.Keys(found.Rejected)) {
		fmt.Fprintf(r.out, "not trained on: %d %s, %s\n", found.Rejected[reason], reason, runfolder.FateOf(reason))
	}
	for _, line := range found.Settings.Text("changes of settings") {
		fmt.Fprintln(r.out, line)
	}
	for _, line := range found.LearntAgain.Text("versions learnt again") {
		fmt.Fprintln(r.out, line)
	}
	for _, line := range found.Faults() {
		fmt.Fprintln(r.out, "  "+report.Plain(line))
	}
	if err := found.Err(); err != nil {
		return err
	}
	fmt.Fprintln(r.out, "audit: twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0 lines_changed=0")
	return nil
}

// usedVerdicts are the verdicts on the trajectories that a step used up.
func usedVerdicts(rec *checkpoint.Record) []runfolder.Verdict {
	var out []runfolder.Verdict
	for v := range runfolder.Verdicts(rec) {
		if v.Fate.Used() {
			out = append(out, v)
		}
	}
	return out
}

// printBatch prints the rollouts of a step whole.
func (r *runRecord) printBatch(rec *checkpoint.Record, asJSON bool) error {
	verdicts := usedVerdicts(rec)
	if len(verdicts) == 0 {
		return fmt.Errorf("step %d trained on nothing: it is the start", rec.Step)
	}
	kept, err := r.record.Batch(rec.Step)
	if errors.Is(err, checkpoint.ErrNoBatch) {
		return fmt.Errorf("%w: %s; weir audit --step %d lists its trajectories", err, r.explainLostText(verdicts[0]), rec.Step)
	}
	if err != nil {
		return err
	}
	for i, t := range kept {
		if i > 0 && !asJSON {
			fmt.Fprintln(r.out)
		}
		at := slices.IndexFunc(verdicts, func(v runfolder.Verdict) bool { return v.ID == t.ID })
		if at < 0 {
			return fmt.Errorf("step %d: its batch holds %s, of which its record says nothing", rec.Step, t.ID)
		}
		if err := r.printRollout(runfolder.Refused{Verdict: verdicts[at], Trajectory: t}, asJSON, false); err != nil {
			return err
		}
	}
	return nil
}
