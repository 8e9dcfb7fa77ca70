package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Prove from the record what became of every trajectory", Args: cobra.NoArgs,
		Long: `Audit reads the record that the trainer writes with each checkpoint and checks that no trajectory entered two
steps, no prompt was skipped, no step is missing, and nothing was used further behind than the bound. With --step it
prints the exact batch of one step.`,
		Example: "  weir audit\n  weir audit --step 12",
	}
	step := cmd.Flags().Int64("step", -1, "print the batch of this step")
	whole := cmd.Flags().Bool("json", false, "with --step: print each trajectory whole, a line each, as it was trained on")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *whole && *step < 0 {
			return &exitError{exitUsage, errors.New("--json: give the step to print with --step")}
		}
		cfg, err := a.loadWritten(cmd)
		if err != nil {
			return err
		}
		dir := cfg.Trainer.Checkpoint.Dir
		records, err := checkpoint.ReadRecords(dir)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			return fmt.Errorf("%s has no record of steps: is --run.name %s the run?", dir, cfg.Run.Name)
		}
		if *step >= 0 {
			at := slices.IndexFunc(records, func(r checkpoint.Record) bool { return r.Step == *step })
			if at < 0 {
				return &exitError{exitUsage, fmt.Errorf("--step %d: the record has steps 0 to %d", *step, records[len(records)-1].Step)}
			}
			if *whole {
				return a.printWhole(dir, &records[at])
			}
			a.printBatch(&records[at])
			return nil
		}
		r := audit.Check(records, cfg.Trainer.Eta, nil)
		fmt.Fprintf(a.out, "steps %d, trajectories trained on %d, most versions behind %d (bound %d)\n",
			r.Steps, r.Trained, r.MaxStaleness, cfg.Trainer.Eta)
		if r.Baselines > 0 {
			fmt.Fprintf(a.out, "greedy rollouts used as baselines %d\n", r.Baselines)
		}
		if r.PassedOver > 0 {
			fmt.Fprintf(a.out, "samples passed over for others of their group %d\n", r.PassedOver)
		}
		for _, reason := range slices.Sorted(maps.Keys(r.Rejected)) {
			fmt.Fprintf(a.out, "not trained on: %d %s\n", r.Rejected[reason], reason)
		}
		for _, line := range r.Faults() {
			fmt.Fprintln(a.out, "  "+line)
		}
		if err := r.Err(); err != nil {
			return err
		}
		fmt.Fprintln(a.out, "audit: twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0")
		return nil
	}
	return cmd
}

func (a *app) printBatch(rec *checkpoint.Record) {
	for _, g := range rec.Groups {
		for i, m := range g.Used() {
			as := ""
			switch {
			case i == len(g.Members):
				as = "\tbaseline"
			case m.PassedOver:
				as = "\tpassed over"
			}
			fmt.Fprintf(a.out, "%s\tsequence %d\tversions %d to %d\treward %g%s\n", m.ID, m.Sequence, m.Oldest, m.Newest, m.Reward, as)
		}
	}
}

// printWhole reads the batch of a step again, from the copy that the trainer keeps.
func (a *app) printWhole(dir string, rec *checkpoint.Record) error {
	deliveries, err := checkpoint.ReadBatch(dir, rec)
	if err != nil {
		return err
	}
	out := json.NewEncoder(a.out)
	for _, d := range deliveries {
		if err := out.Encode(d.Trajectory); err != nil {
			return fmt.Errorf("print %s: %w", d.Trajectory.ID, err)
		}
	}
	return nil
}
