package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
)

func newTraceCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "trace [run or folder]", Short: "List the steps that saw a prompt, and their weights", Args: cobra.MaximumNArgs(1),
		Long: `Trace lists every group of rollouts of a prompt: the step that trained on it or why none did, and of each trajectory
the policy versions that sampled it, its reward, and its mean advantage in the step. Step N trained version N-1 and made
version N. Weights are named by the first digits of the hash of the published version, as weir replay names them.

The record of steps has the ids of prompts, so that no batch is read. weir trajectory prints the id of a rollout's
prompt. In runs of an older build the archive and the kept batches say which prompt a group was of.`,
		Example: "  weir trace --prompt library/17\n  weir trace mine --prompt library/17 -o json",
	}
	prompt := cmd.Flags().String("prompt", "", "the prompt's id")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *prompt == "" {
			return fault.Usage(errors.New("--prompt: name the prompt by its id, which weir trajectory prints of a rollout"))
		}
		if err := nameRun(cmd, args); err != nil {
			return err
		}
		r, err := a.openRecord(cmd)
		if err != nil {
			return err
		}
		defer r.folder.Close()
		changed := 0
		traced, err := r.folder.Trace(*prompt, func(err error) {
			if changed++; changed == 1 {
				r.record.Damaged(err)
			}
		})
		if err != nil {
			return err
		}
		if n := len(traced.Unknown); n > 0 {
			fmt.Fprintf(a.err, "%d steps are not searched, the first %d and the last %d: their lines of the record are of an older "+
				"build without prompts, and their batches are not kept or too many to read\n", n, traced.Unknown[0], traced.Unknown[n-1])
		}
		if len(traced.Groups) == 0 {
			return fmt.Errorf("no step of run %s saw a prompt with the id %q; weir trajectory prints the id of a rollout's prompt",
				r.Config.Run.Name, *prompt)
		}
		if format.isJSON() {
			return r.printTraceJSON(traced)
		}
		return r.printTrace(traced)
	}
	return cmd
}

// printTrace prints a table of the trajectories, and the weights of their versions.
func (r *runRecord) printTrace(traced *runfolder.Trace) error {
	w := table.NewWriter()
	w.SetOutputMirror(r.out)
	w.SetStyle(table.StyleLight)
	w.AppendHeader(table.Row{"step", "task", "trajectory", "fate", "sampled by", "reward", "advantage"})
	for _, g := range traced.Groups {
		task := report.Plain(g.Task)
		if g.Reason != "" {
			w.AppendRow(table.Row{g.Step, task, report.Plain(g.Group), "dropped: " + report.Plain(string(g.Reason)), "", "", ""})
		}
		for _, m := range g.Members {
			advantage := "-"
			if m.Advantage != nil {
				advantage = fmt.Sprintf("%.4g", *m.Advantage)
			}
			w.AppendRow(table.Row{
				g.Step, task, report.Plain(m.ID), m.Fate, fmt.Sprintf("%d to %d", m.Oldest, m.Newest), fmt.Sprintf("%.3f", m.Reward), advantage,
			})
		}
	}
	w.Render()
	for _, version := range slices.Sorted(maps.Keys(traced.Weights)) {
		fmt.Fprintf(r.out, "version %d: weights %s\n", version, traced.Weights[version])
	}
	return nil
}

// tracedGroup is a group of a prompt as JSON.
type tracedGroup struct {
	Prompt string `json:"prompt"`
	Task   string `json:"task"`
	Source string `json:"source"`
	Group  string `json:"group"`
	Step   int64  `json:"step"`
	// State is trained, or dropped with the reason.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Weights name the weights of the versions below, by version.
	Weights      map[int64]string   `json:"weights"`
	Trajectories []tracedTrajectory `json:"trajectories"`
}

// tracedTrajectory is a trajectory of such a group.
type tracedTrajectory struct {
	verdictAnswer
	Advantage *float32 `json:"advantage"`
}

// printTraceJSON prints a document for each group.
func (r *runRecord) printTraceJSON(traced *runfolder.Trace) error {
	for _, g := range traced.Groups {
		out := tracedGroup{
			Prompt: g.Prompt, Task: g.Task, Source: g.Source, Group: g.Group, Step: g.Step, Reason: string(g.Reason),
			State:   cmp.Or(map[bool]string{true: runfolder.FateTrained.String()}[g.Reason == ""], runfolder.FateDropped.String()),
			Weights: map[int64]string{}, Trajectories: []tracedTrajectory{},
		}
		addWeights := func(from, to int64) {
			for v := from; v <= to; v++ {
				if name, known := traced.Weights[v]; known {
					out.Weights[v] = name
				}
			}
		}
		if g.Reason == "" {
			addWeights(g.Step-1, g.Step)
		}
		for _, m := range g.Members {
			out.Trajectories = append(out.Trajectories, tracedTrajectory{newVerdictAnswer(m.Verdict), m.Advantage})
			addWeights(m.Oldest, m.Newest)
		}
		if err := r.printJSON(out); err != nil {
			return err
		}
	}
	return nil
}
