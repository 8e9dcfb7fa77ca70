package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/compare"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
)

// stopGrace is how long a run may take to end in order when the comparison is interrupted.
const stopGrace = time.Minute

// compareFlags are the flags of weir compare.
type compareFlags struct {
	dir, seeds *string
	parallel   *int
	reportOnly *bool
	format     *outputFormat
}

func newCompareCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "compare FILE", Short: "Train settings from several seeds and report how they differ", Args: cobra.ExactArgs(1),
		Long: `Compare trains each arm of a file, settings over a shared base, from each of its seeds, and prints steps to a score, the area
under the held-out curve, final scores greedy and sampled, and probabilities of improvement, with bootstrap intervals
over the seeds, and whether each claim of the file is held, not held or undecided. docs/compare.md describes the file.

Each run is an ordinary run folder under --dir, trained by weir up in a process of its own. The same command goes on
after an interruption: a finished run is not run again. A run that fails has its last words in its row, and the others
go on; the exit status is 1 then. The report is kept there too, as report.json, report.md and curves.svg.`,
		Example: "  weir compare examples/papers/agent-r1-masks/compare.yaml\n" +
			"  weir compare compare.yaml --seeds tuning --parallel 1\n  weir compare compare.yaml --report -o json",
	}
	flags := cmd.Flags()
	f := compareFlags{
		dir:        flags.String("dir", "", "the folder of the runs and the report; runs/compare/NAME by default"),
		seeds:      flags.String("seeds", string(compare.Testing), "which seeds to run: testing, tuning or all"),
		parallel:   flags.Int("parallel", 0, "runs at once; 0 takes the file's number, or chooses by memory and cores"),
		reportOnly: flags.Bool("report", false, "train nothing: report the runs that are there"),
		format:     jsonFlag(cmd),
	}
	completeWith(cmd, "seeds", string(compare.Testing), string(compare.Tuning), string(compare.All))
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.runComparison(cmd.Context(), args[0], f) }
	return cmd
}

// runComparison trains the runs of a file that are not finished, and prints the report.
func (a *app) runComparison(ctx context.Context, path string, f compareFlags) error {
	plan, err := a.planComparison(path, f)
	if err != nil {
		return err
	}
	var outcomes []compare.Outcome
	if *f.reportOnly {
		outcomes, err = plan.Outcomes()
	} else {
		outcomes, err = a.trainComparison(ctx, plan, f)
	}
	if stopped := interruptedError(ctx, nil); stopped != nil {
		fmt.Fprintln(a.err, "stopped; the same command goes on")
		return stopped
	}
	if err != nil {
		return err
	}
	report, err := plan.Report(outcomes)
	if err != nil {
		return err
	}
	if f.format.isJSON() {
		err = a.printJSON(report)
	} else {
		err = report.WriteText(a.out)
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(plan.Dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of the report: %w", err)
	}
	if err := report.Write(); err != nil {
		return err
	}
	if slices.ContainsFunc(outcomes, func(o compare.Outcome) bool { return o.State == compare.StateFailed }) {
		return &statusError{exitRuntime, errSaid}
	}
	return nil
}

// planComparison reads the file and plans its runs.
func (a *app) planComparison(path string, f compareFlags) (*compare.Plan, error) {
	choice := compare.Choice(*f.seeds)
	if !slices.Contains([]compare.Choice{compare.Testing, compare.Tuning, compare.All}, choice) {
		return nil, fault.Usagef("--seeds %q: want testing, tuning or all", *f.seeds)
	}
	if *f.parallel < 0 {
		return nil, fault.Usagef("--parallel %d: want a number of runs, or 0", *f.parallel)
	}
	file, err := compare.ReadFile(path)
	if err != nil {
		return nil, err
	}
	dir := *f.dir
	if dir == "" {
		dir = filepath.Join("runs", "compare", file.Name)
	}
	return file.MakePlan(dir, choice, func(from config.Sources) (*config.Config, map[string]string, error) {
		return assembly.Resolve(a.doors, from)
	})
}

// trainComparison trains the runs that are not finished, each by this program.
func (a *app) trainComparison(ctx context.Context, plan *compare.Plan, f compareFlags) ([]compare.Outcome, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to train runs: %w", err)
	}
	parallel := *f.parallel
	if parallel == 0 {
		parallel = plan.File.Parallel
	}
	if parallel == 0 {
		parallel = compare.ParallelRuns(a.memory, runtime.GOMAXPROCS(0))
	}
	runner := &compare.Processes{Program: []string{program}, Environ: a.environ, Parallel: parallel, Grace: stopGrace}
	return plan.Execute(ctx, runner, parallel, func(line string) { fmt.Fprintln(a.err, line) })
}
