package cli

import (
	"context"
	"errors"
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
		Use: "compare FILE|FOLDER...", Short: "Train settings from several seeds and report how they differ", Args: cobra.MinimumNArgs(1),
		Long: `Compare trains each arm of a file, settings over a shared base, from each of its seeds, and prints steps to a score, the area
under the held-out curve, final scores greedy and sampled, and probabilities of improvement, with bootstrap intervals
over the seeds, and whether each claim of the file is held, not held or undecided. docs/compare.md describes the file.

Each run is an ordinary run folder under --dir, trained by weir up in a process of its own. The same command goes on
after an interruption: a finished run is not run again. A run that fails has its last words in its row, and the others
go on; the exit status is 1 then. The report is kept there too, as report.json, report.md and curves.svg.

Several files are compared one after another, each in a folder of its own name; the claims of all are printed last, and
kept beside these folders as claims.md, from the first file on. A folder in the place of a file stands for its
compare.yaml, or for the compare.yaml of each folder in it.`,
		Example: "  weir compare examples/papers/agent-r1-masks/compare.yaml\n  weir compare examples/papers\n" +
			"  weir compare compare.yaml --seeds tuning --parallel 1\n  weir compare compare.yaml --report -o json",
	}
	flags := cmd.Flags()
	f := compareFlags{
		dir:        flags.String("dir", "", "the folder of the runs and the report, or of several such folders; runs/compare/NAME by default"),
		seeds:      flags.String("seeds", string(compare.Testing), "which seeds to run: testing, tuning or all"),
		parallel:   flags.Int("parallel", 0, "runs at once; 0 takes the file's number, or chooses by memory and cores"),
		reportOnly: flags.Bool("report", false, "train nothing: report the runs that are there"),
		format:     jsonFlag(cmd),
	}
	completeWith(cmd, "seeds", string(compare.Testing), string(compare.Tuning), string(compare.All))
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.runComparisons(cmd.Context(), args, f) }
	return cmd
}

// runComparisons trains the runs of each file that are not finished, file by file, and prints the reports. Every file is planned before any
// run is trained. A failed run fails the command after the last file.
func (a *app) runComparisons(ctx context.Context, paths []string, f compareFlags) error {
	if err := f.checkFlags(); err != nil {
		return err
	}
	files, several, err := compare.FindFiles(paths)
	if err != nil {
		return err
	}
	plans, err := a.planComparisons(files, several, f)
	if err != nil {
		return err
	}
	var reports []*compare.Report
	failed := false
	for i, plan := range plans {
		if several {
			fmt.Fprintf(a.err, "comparison %s (%d of %d)\n", plan.File.Name, i+1, len(plans))
		}
		report, outcomes, err := a.runComparison(ctx, plan, f)
		if err != nil {
			return err
		}
		reports = append(reports, report)
		failed = failed || slices.ContainsFunc(outcomes, func(o compare.Outcome) bool { return o.State == compare.StateFailed })
		if !several {
			continue
		}
		if err := compare.WriteClaims(filepath.Dir(plan.Dir), reports); err != nil {
			return err
		}
	}
	if several && !f.format.isJSON() {
		fmt.Fprint(a.out, "\n"+compare.SummarizeClaims(reports))
	}
	if failed {
		return &statusError{exitRuntime, errSaid}
	}
	return nil
}

// runComparison trains the runs of a plan that are not finished, and prints and writes the report.
func (a *app) runComparison(ctx context.Context, plan *compare.Plan, f compareFlags) (*compare.Report, []compare.Outcome, error) {
	var outcomes []compare.Outcome
	var err error
	if *f.reportOnly {
		outcomes, err = plan.Outcomes()
	} else {
		outcomes, err = a.trainComparison(ctx, plan, f)
	}
	if stopped := interruptedError(ctx, nil); stopped != nil {
		fmt.Fprintln(a.err, "stopped; the same command goes on")
		return nil, nil, stopped
	}
	if err != nil {
		return nil, nil, err
	}
	report, err := plan.Report(outcomes)
	if err != nil {
		return nil, nil, err
	}
	if f.format.isJSON() {
		err = a.printJSON(report)
	} else {
		err = report.WriteText(a.out)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(plan.Dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make the folder of the report: %w", err)
	}
	return report, outcomes, report.Write()
}

// checkFlags refuses values that no comparison has.
func (f *compareFlags) checkFlags() error {
	if !slices.Contains([]compare.Choice{compare.Testing, compare.Tuning, compare.All}, compare.Choice(*f.seeds)) {
		return fault.Usagef("--seeds %q: want testing, tuning or all", *f.seeds)
	}
	if *f.parallel < 0 {
		return fault.Usagef("--parallel %d: want a number of runs, or 0", *f.parallel)
	}
	return nil
}

// planComparisons plans the runs of each file. Of several files each has the folder of its name in --dir. The error has the faults of all.
func (a *app) planComparisons(paths []string, several bool, f compareFlags) (plans []*compare.Plan, err error) {
	var faults []error
	folders := map[string]string{}
	for _, path := range paths {
		plan, err := a.planComparison(path, several, f)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if other, taken := folders[plan.Dir]; taken {
			faults = append(faults, config.Invalid(fmt.Errorf("comparisons %s and %s are both named %s: give each a name of its own", other, path, plan.File.Name)))
		}
		folders[plan.Dir] = path
		plans = append(plans, plan)
	}
	return plans, config.Invalid(errors.Join(faults...))
}

// planComparison reads a file, alone or of several, and plans its runs.
func (a *app) planComparison(path string, several bool, f compareFlags) (*compare.Plan, error) {
	file, err := compare.ReadFile(path)
	if err != nil {
		return nil, err
	}
	dir := *f.dir
	if dir == "" {
		dir, several = filepath.Join("runs", "compare"), true
	}
	if several {
		dir = filepath.Join(dir, file.Name)
	}
	return file.MakePlan(dir, compare.Choice(*f.seeds), func(from config.Sources) (*config.Config, map[string]string, error) {
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
