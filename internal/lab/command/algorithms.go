package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
)

// algorithmKeys are the compared algorithms, by name: the keys that make each of them out of the defaults.
func algorithmKeys() map[string]map[string]string {
	return map[string]map[string]string{
		"grpo":         {},
		"dr_grpo":      {"trainer.advantage.name": "dr_grpo"},
		"rloo":         {"trainer.advantage.name": "rloo"},
		"reinforce_pp": {"trainer.advantage.name": "reinforce_pp"},
		"gae":          {"trainer.advantage.name": "gae", "trainer.critic.network": "own"},
		"cispo":        {"trainer.loss.name": "cispo"},
		"gspo":         {"trainer.loss.name": "gspo"},
	}
}

// algorithmsBench trains with each of several algorithms from the same cold starts.
type algorithmsBench struct {
	bench
	seeds int
	names []string
	// from are the sources of every run's configuration.
	from config.Sources
}

// learned is how an algorithm learned from the cold start of a seed.
type learned struct {
	Algorithm string `json:"algorithm"`
	Seed      int    `json:"seed"`
	report.Learning
}

func (l *lab) algorithmsCommand() *cobra.Command {
	b := &algorithmsBench{bench: bench{lab: l}}
	cmd := &cobra.Command{
		Use: "algorithms", Short: "Compare how fast several algorithms learn", Args: cobra.NoArgs,
		Long: `Algorithms trains with each algorithm from the same cold starts, one for each seed, on the same questions, and prints
how many steps the greedy score on the validation split takes to 0.8 and to 0.9, and the area under its curve: the
mean score from the first step to the last. Runs are synchronous and deterministic unless --trainer.eta says
otherwise, so the figures do not depend on the machine's speed. What is in --dir already is not run again.`,
		Example: "  weir-lab bench algorithms\n  weir-lab bench algorithms --algorithms grpo,gspo --seeds 1 --dir runs/compared",
	}
	cmd.Flags().StringVar(&b.home, "dir", "", "a folder for the runs; a temporary one by default")
	cmd.Flags().IntVar(&b.seeds, "seeds", 3, "cold starts, with the seeds 1, 2, ...")
	cmd.Flags().StringSliceVar(&b.names, "algorithms", slices.Sorted(maps.Keys(algorithmKeys())), "which to compare")
	l.addConfigFlags(cmd)
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := b.validateFlags(); err != nil {
			return fault.Usage(err)
		}
		b.from = l.configSources(cmd)
		b.from.Change = func(c *config.Config) {
			makeQuiet(c)
			c.Trainer.Steps, c.Trainer.Eta, c.Trainer.Deterministic = 40, 0, true
			c.Eval.Every, c.Eval.Show = 2, 0
		}
		if _, err = b.resolveKeys(nil); err != nil { // before anything is made
			return err
		}
		remove, err := b.openHome()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
		all, err := b.measureAll(cmd.Context())
		if err != nil {
			return err
		}
		if format.isJSON() {
			return l.printReport(format, all, nil)
		}
		return printLearned(l.out, b.names, all)
	}
	return cmd
}

func (b *algorithmsBench) validateFlags() error {
	var errs []error
	if b.seeds < 1 {
		errs = append(errs, fmt.Errorf("--seeds %d: must be positive", b.seeds))
	}
	for _, name := range b.names {
		if known := algorithmKeys(); known[name] == nil {
			errs = append(errs, fmt.Errorf("--algorithms %q: want some of %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
		}
	}
	return errors.Join(errs...)
}

func (b *algorithmsBench) measureAll(ctx context.Context) ([]learned, error) {
	var all []learned
	for seed := 1; seed <= b.seeds; seed++ {
		home := filepath.Join(b.home, "seed-"+strconv.Itoa(seed))
		start, err := b.makeColdStart(ctx, home, seed)
		if err != nil {
			return nil, err
		}
		for _, name := range b.names {
			l, err := b.trainAlgorithm(ctx, home, start, name, seed)
			if err != nil {
				return nil, fmt.Errorf("%s, seed %d: %w", name, seed, err)
			}
			all = append(all, learned{name, seed, l})
		}
	}
	return all, nil
}

// makeColdStart makes the cold start of a seed, unless it is there.
func (b *algorithmsBench) makeColdStart(ctx context.Context, home string, seed int) (string, error) {
	start := filepath.Join(home, "start")
	if _, err := os.Stat(start); err == nil {
		return start, nil
	}
	making := filepath.Join(home, "making") // moved when it is whole
	cfg, err := b.resolveKeys(map[string]string{"run.seed": strconv.Itoa(seed), "run.dir": making})
	if err != nil {
		return "", err
	}
	made := filepath.Join(making, "start")
	if err := b.coldStart(ctx, cfg, made); err != nil {
		return "", err
	}
	if err := os.Rename(made, start); err != nil {
		return "", fmt.Errorf("keep the cold start: %w", err)
	}
	return start, os.RemoveAll(making)
}

// resolveKeys returns a run's configuration, with some keys set over the sources.
func (b *algorithmsBench) resolveKeys(keys map[string]string) (*config.Config, error) {
	from := b.from
	from.Flags = maps.Clone(from.Flags)
	maps.Copy(from.Flags, keys)
	return b.resolveConfig(from)
}

// trainAlgorithm trains with an algorithm, or goes on where it was left, and returns how it learned.
func (b *algorithmsBench) trainAlgorithm(ctx context.Context, home, start, name string, seed int) (report.Learning, error) {
	keys := map[string]string{
		"run.dir": home, "run.name": name, "run.seed": strconv.Itoa(seed), "model.folder": start, "trainer.cold_start.steps": "0",
		"trainer.checkpoint.dir": "", "broker.store_dir": "",
	}
	maps.Copy(keys, algorithmKeys()[name])
	cfg, err := b.resolveKeys(keys)
	if err != nil {
		return report.Learning{}, err
	}
	metrics := filepath.Join(cfg.Folder(), "metrics.jsonl")
	records, err := report.ReadMetrics(metrics)
	if err == nil && !trainedTo(records, cfg.Trainer.Steps) {
		if err = b.trainRun(ctx, cfg, fmt.Sprintf("%s, seed %d", name, seed)); err == nil {
			records, err = report.ReadMetrics(metrics)
		}
	}
	if err != nil {
		return report.Learning{}, err
	}
	l, ok := report.ReadLearning(records)
	if !ok {
		return l, fmt.Errorf("fewer than two versions were scored: lower eval.every, %d, or raise trainer.steps, %d", cfg.Eval.Every, cfg.Trainer.Steps)
	}
	return l, nil
}

// trainedTo says whether a run has done that number of steps.
func trainedTo(records []report.Record, steps int64) bool {
	return slices.ContainsFunc(records, func(r report.Record) bool {
		return r.Type == string(schemas.EventStepDone) && r.Step >= steps
	})
}

// printLearned has a line for each algorithm. Differences are from the first algorithm and taken seed by seed, as
// each seed's runs have their start and their questions in common.
func printLearned(w io.Writer, names []string, all []learned) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "algorithm\tsteps to 0.8\tsteps to 0.9\tarea\tmean\tarea less %s's\tend\n", names[0])
	for _, name := range names {
		var to80, to90, area, less, end []string
		sum, n := 0.0, 0
		for _, l := range all {
			if l.Algorithm != name {
				continue
			}
			for _, first := range all {
				if first.Algorithm == names[0] && first.Seed == l.Seed {
					less = append(less, fmt.Sprintf("%+.3f", l.Area-first.Area))
				}
			}
			to80, to90 = append(to80, formatSteps(l.To80)), append(to90, formatSteps(l.To90))
			area, end = append(area, fmt.Sprintf("%.3f", l.Area)), append(end, fmt.Sprintf("%.3f", l.End))
			sum, n = sum+l.Area, n+1
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%.3f\t%s\t%s\n", name, strings.Join(to80, " "), strings.Join(to90, " "), strings.Join(area, " "),
			sum/float64(n), strings.Join(less, " "), strings.Join(end, " "))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

func formatSteps(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}
