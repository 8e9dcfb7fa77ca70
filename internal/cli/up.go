package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

func newUpCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "up", Short: "Run every role in this process: the whole training", Args: cobra.NoArgs,
		Long: `Up trains an agent from nothing, in one process, over the same streams as the roles use when they run apart. It shows
how the run goes, and ends with a report on questions that the policy has never been trained on. A run that was
stopped goes on where it was.`,
		Example: "  weir up\n  weir up --run.name mine --trainer.eta 0\n  weir up --run.name cispo --trainer.loss.name cispo",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.openProcess(cmd, "run", "weights")
			if err != nil {
				return err
			}
			// A port that somebody chose is not changed for another.
			fixed := cmd.Flags().Changed("broker.listen") || s.Config.Broker.Listen != a.keys().known.Broker.Listen
			return a.trainUp(cmd.Context(), s, fixed)
		},
	}
	a.plainFlag(cmd)
	return cmd
}

// plainFlag gives a command that shows a run as it goes the flag --plain.
func (w *console) plainFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.plain, "plain", false, "a line a step, no live view; so do NO_COLOR and TERM=dumb")
}

// trainUp runs the whole pipeline until the training is done or ctx ends.
func (a *app) trainUp(ctx context.Context, s *assembly.Run, fixedPort bool) error {
	began := time.Now()
	// Warnings go to the terminal too, where there is no live view.
	if !a.showsLive(a.err) {
		loud := s.Config.Log
		if loud.Level == "info" {
			loud.Level = "warn"
		}
		if loud.Format == "auto" {
			loud.Format = "text" // it stands between lines that people read; weir.log is as configured
		}
		s.Beside = withoutShown{telemetry.NewLogger(a.err, loud).Handler()}
	}
	fmt.Fprintf(a.err, "run %s: opening its tasks, %s\n", s.Config.Run.Name, s.Config.Folder())
	r, err := s.OpenLocal(ctx, fixedPort)
	if err != nil {
		return err
	}
	defer r.Close()
	if a.showsLive(a.err) { // elsewhere the log says it
		if err := printUnread(a.err, s); err != nil {
			return err
		}
	}
	view := a.newProgress(s.Config, a.err)
	defer view.Close()
	view.Title(fmt.Sprintf("run %s: %s, %s", s.Config.Run.Name, r.Course.Names(), r.Dir))
	if follows := s.Config.FolderDefaults(); follows != "" {
		view.Title(follows)
	}
	for _, line := range r.Course.RecordedNotes(s.Config) {
		view.Title(line)
	}
	for _, line := range append(r.Course.FewQuestions(), r.Course.TrialNotes()...) {
		view.Title("warning: " + line)
	}
	failed := r.Train(ctx, view)
	view.Close()
	if failed == nil && ctx.Err() == nil {
		var end *assembly.FinalReport
		end, failed = r.Report(ctx, time.Since(began))
		a.printFinalReport(s, r.Course, end)
	}
	if stopped := context.Cause(ctx); stopped != nil {
		dir := s.Config.Trainer.Checkpoint.Dir
		if steps, err := checkpoint.Steps(dir); err == nil && len(steps) == 0 {
			fmt.Fprintf(a.out, "stopped (%v) before version 0 was ready: nothing is kept yet, and the same command begins anew\n", stopped)
		} else {
			fmt.Fprintf(a.out, "stopped (%v); the same command goes on from %s\n", stopped, dir)
		}
		return interruptedError(ctx, errSaid)
	}
	return failed
}

// printUnread shows the settings that nothing reads where a live view would hide the log.
func printUnread(w io.Writer, s *assembly.Run) error {
	for _, line := range assembly.UnreadLines(s.Config, s.Origins) {
		if _, err := fmt.Fprintln(w, "weir: warning:", line); err != nil {
			return err
		}
	}
	return nil
}
