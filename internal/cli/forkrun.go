package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/fault"
)

func newForkCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "fork RUN --step N NEW", Short: "Make a run that goes on from a step of another", Args: cobra.ExactArgs(2),
		Long: `Fork makes the folder of run NEW, which goes on after step N of RUN: weights, optimizer, counters, the record of steps
and the kept batches up to there. Files are shared with RUN where the file system has hard links, so that a fork takes
a moment and little room; RUN can go on, or be removed. The record of NEW continues that of RUN and names it. Prompts
whose rollouts were under way at step N are issued again, because the streams are not shared.`,
		Example: "  weir fork mine --step 12 other\n  weir up --config runs/other/config.yaml",
	}
	step := cmd.Flags().Int64("step", -1, "the step to go on from; it must have a checkpoint")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *step < 0 {
			return fault.Usagef("--step: name the step to go on from")
		}
		if err := nameRun(cmd, args[:1]); err != nil {
			return err
		}
		cfg, err := a.loadWritten(cmd)
		if err != nil {
			return err
		}
		s, err := a.processOf(cfg)
		if err != nil {
			return err
		}
		made, err := s.Fork(args[1], *step)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "run %s goes on from step %d of run %s, in %s: %d files are shared with it\n",
			args[1], *step, cfg.Run.Name, made.Folder, made.Linked)
		if made.Copied > 0 {
			fmt.Fprintf(a.out, "%d files were copied: this file system has no hard links\n", made.Copied)
		}
		fmt.Fprintf(a.out, "weir up --config %s goes on\n", made.Config)
		return nil
	}
	return cmd
}
