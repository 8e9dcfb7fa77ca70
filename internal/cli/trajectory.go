package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

func newTrajectoryCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "trajectory ID", Short: "Read a rollout as text, and what became of it", Args: cobra.ExactArgs(1),
		Long: `Trajectory prints a rollout by its id, such as g000123-a0-5: the prompt, what the policy said, its calls, what they
brought, its answer, the reward with its components, and which step trained on it or why none did. A group's id, or
any beginning of an id, lists what the record has of it.

The text is that of the batches that the trainer keeps beside its checkpoints, in <trainer.checkpoint.dir>/batches:
trainer.checkpoint.batches says how many. What they lack is looked for in the archive: with
trainer.archive.messages.bytes it has every trajectory, else some of those that were dropped with their groups. A
refused trajectory is looked for in REJECTED too, where the run's broker, or its store, is at hand.`,
		Example: "  weir trajectory g000012-a0\n  weir trajectory g000012-a0-3\n  weir trajectory g000012-a0-3 --run.name mine -o json",
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := a.openRecord(cmd)
		if err != nil {
			return err
		}
		verdicts, err := r.record.Find(args[0])
		if err != nil {
			return err
		}
		found := withoutTrajectories(verdicts)
		if !answersWhole(found, args[0]) {
			refused, err := r.findRefused(cmd.Context(), args[0])
			if err != nil {
				fmt.Fprintf(a.err, "REJECTED was not looked at: %v\n", err)
			}
			found = mergeRefused(found, refused)
		}
		switch {
		case len(found) == 0:
			return fmt.Errorf("no trajectory of run %s has an id that begins with %q; weir audit --step N lists those of a step", r.Config.Run.Name, args[0])
		case slices.ContainsFunc(found, func(t runfolder.Refused) bool { return t.ID != found[0].ID }):
			return r.listVerdicts(found, format.isJSON())
		}
		return r.printRollout(found[0], format.isJSON(), true)
	}
	return cmd
}

// runRecord is the record of a run's steps, and the folder that has the trajectories.
type runRecord struct {
	*app
	*assembly.Run
	record runfolder.Record
	folder *runfolder.Folder
}

// openRecord opens the record of the run's steps.
func (a *app) openRecord(cmd *cobra.Command) (*runRecord, error) {
	r, err := a.openFolder(cmd)
	if err != nil {
		return nil, err
	}
	if err := r.record.Check(); errors.Is(err, runfolder.ErrNoRecord) {
		err = &noRecordError{r.record.Dir, r.Config.Run.Name}
		return nil, a.explainNoFiles(r.Run, cmd.Name(), err)
	} else if err != nil {
		return nil, err
	}
	return r, nil
}

// openStore is openRecord, also where a kill came before the first line of the record.
func (a *app) openStore(cmd *cobra.Command) (*runRecord, error) {
	if r, err := a.openFolder(cmd); err != nil || checkpoint.IsStore(r.record.Dir) {
		return r, err
	}
	return a.openRecord(cmd)
}

// openFolder opens the folder of a run that may have no record.
func (a *app) openFolder(cmd *cobra.Command) (*runRecord, error) {
	cfg, err := a.loadWritten(cmd)
	if err != nil {
		return nil, err
	}
	s, err := a.processOf(cfg)
	if err != nil {
		return nil, err
	}
	dir := cfg.Trainer.Checkpoint.Dir
	return &runRecord{
		app: a, Run: s,
		record: runfolder.Record{Dir: dir, Damaged: func(err error) {
			fmt.Fprintf(a.err, "%v; weir audit lists what is wrong with the record\n", err)
		}},
		folder: runfolder.Open(runfolder.Run{
			Name: cfg.Run.Name, Dir: cfg.Folder(), Checkpoints: dir, Messages: assembly.KeptMessages(cfg),
		}),
	}, nil
}

// noRecordError is the runfolder.ErrNoRecord of a run's folder of checkpoints.
type noRecordError struct{ dir, run string }

func (e *noRecordError) Error() string {
	return fmt.Sprintf("%s has no record of steps: is --run.name %s the run?", e.dir, e.run)
}

func (e *noRecordError) Unwrap() error { return runfolder.ErrNoRecord }

// withoutTrajectories are verdicts of whose trajectories only the record is read yet.
func withoutTrajectories(verdicts []runfolder.Verdict) []runfolder.Refused {
	var out []runfolder.Refused
	for _, v := range verdicts {
		out = append(out, runfolder.Refused{Verdict: v})
	}
	return out
}

// answersWhole reports whether the record alone answers: the trajectory was used up by a step, or dropped.
func answersWhole(found []runfolder.Refused, id string) bool {
	return len(found) == 1 && found[0].ID == id && found[0].Fate != runfolder.FateRefused
}

// mergeRefused adds the entries of REJECTED to the entries of the record: the trajectories themselves, and trajectories that no step has
// noted yet.
func mergeRefused(found, refused []runfolder.Refused) []runfolder.Refused {
	for _, r := range refused {
		at := slices.IndexFunc(found, func(f runfolder.Refused) bool { return f.ID == r.ID })
		switch {
		case at < 0:
			found = append(found, r)
		case found[at].Fate == runfolder.FateRefused && found[at].Trajectory == nil && found[at].Sequence == r.Sequence:
			found[at].Trajectory, found[at].Detail = r.Trajectory, r.Detail
		}
	}
	return found
}

// findRefused looks for an id, or its beginning, in REJECTED: at the run's broker, else in its store. Without either there is
// nothing to look at.
func (r *runRecord) findRefused(ctx context.Context, id string) ([]runfolder.Refused, error) {
	if _, err := os.Stat(r.Config.Broker.StoreDir); r.Config.Broker.URL == "" && assembly.NotedBroker(r.Config.Folder()) == "" && err != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	run, _, leave, err := r.Connector().Visit(ctx, streams.RoleViewer)
	if err != nil {
		return nil, err
	}
	defer leave()
	var out []runfolder.Refused
	for refused, err := range runfolder.RejectedTrajectories(ctx, run) {
		if err != nil {
			return out, err
		}
		if refused.Trajectory != nil && strings.HasPrefix(refused.ID, id) {
			out = append(out, refused)
		}
	}
	return out, nil
}

// verdictAnswer is a verdict as JSON.
type verdictAnswer struct {
	ID    string `json:"id"`
	Group string `json:"group"`
	// State is the name of the fate.
	State string `json:"state"`
	// Step used the trajectory up, or is the step whose record notes its end; -1 where only REJECTED has it.
	Step     int64  `json:"step"`
	Sequence uint64 `json:"sequence"`
	// Again are the further steps that trained on it.
	Again []int64 `json:"trained_again,omitempty"`
	// Reward, OldestVersion and NewestVersion are nil where the record has none.
	Reward        *float64 `json:"reward,omitempty"`
	OldestVersion *int64   `json:"oldest_version,omitempty"`
	NewestVersion *int64   `json:"newest_version,omitempty"`
	Reason        string   `json:"reason,omitempty"`
	Detail        string   `json:"detail,omitempty"`
}

func newVerdictAnswer(v runfolder.Verdict) verdictAnswer {
	out := verdictAnswer{
		ID: v.ID, Group: v.Group, State: v.Fate.String(), Step: v.Step, Sequence: v.Sequence, Again: v.Again,
		Reason: string(v.Reason), Detail: v.Detail,
	}
	if v.Fate.Used() {
		out.Reward, out.OldestVersion, out.NewestVersion = &v.Reward, &v.Oldest, &v.Newest
	}
	return out
}

// listVerdicts prints a line for each trajectory.
func (r *runRecord) listVerdicts(found []runfolder.Refused, asJSON bool) error {
	w := table.NewWriter()
	w.SetOutputMirror(r.out)
	w.SetStyle(table.StyleLight)
	const others = 14 + 10 + 12 + 8 + 8 // id, sequence, versions, reward, borders
	foldColumn(w, terminalColumns(r.out), 2, others)
	w.AppendHeader(table.Row{"id", "what became of it", "sequence", "versions", "reward"})
	for _, t := range found {
		if asJSON {
			if err := r.printJSON(newVerdictAnswer(t.Verdict)); err != nil {
				return err
			}
			continue
		}
		versions, reward := "", ""
		if t.Fate.Used() {
			versions, reward = fmt.Sprintf("%d to %d", t.Oldest, t.Newest), fmt.Sprintf("%.3f", t.Reward)
		}
		w.AppendRow(table.Row{report.Plain(t.ID), report.Plain(t.Verdict.String()), t.Sequence, versions, reward})
	}
	if !asJSON {
		w.Render()
	}
	return nil
}

// printRollout prints a trajectory whole, and says where its text would be if that is not kept.
func (r *runRecord) printRollout(t runfolder.Refused, asJSON, explain bool) error {
	if t.Trajectory == nil {
		var err error
		if t.Trajectory, err = r.readKept(t.Verdict); err != nil {
			return err
		}
	}
	var rollout *report.Rollout
	if t.Trajectory != nil {
		codec, err := r.folder.Tokenizer()
		if codec == nil {
			return cmp.Or(err, fmt.Errorf("%s: no checkpoint has a tokenizer: the text cannot be shown", r.record.Dir))
		}
		rollout = report.NewRollout(t.Trajectory, codec.Decode)
	}
	if asJSON {
		return r.printJSON(struct {
			Fate    verdictAnswer   `json:"fate"`
			Rollout *report.Rollout `json:"rollout"`
		}{newVerdictAnswer(t.Verdict), rollout})
	}
	fmt.Fprintf(r.out, "%s  %s\n", report.Plain(t.ID), report.Plain(t.Verdict.String()))
	if rollout != nil {
		return rollout.Print(r.out, showsColour(r.out, r.environ))
	}
	if explain {
		fmt.Fprintln(r.out, "  "+r.explainLostText(t.Verdict))
	}
	return nil
}

// readKept reads a trajectory from the batch of its step, or from the archive where no step used it; nil where it is not kept.
func (r *runRecord) readKept(v runfolder.Verdict) (*schemas.Trajectory, error) {
	if !v.Fate.Used() {
		return r.folder.Archived(v.ID, v.Sequence)
	}
	kept, err := r.record.Batch(v.Step)
	if err != nil && !errors.Is(err, checkpoint.ErrNoBatch) {
		return nil, err
	}
	at := slices.IndexFunc(kept, func(k *schemas.Trajectory) bool { return k.ID == v.ID })
	if at < 0 {
		return r.folder.FromMessages(v.ID, v.Sequence)
	}
	return kept[at], nil
}

// explainLostText says why a trajectory's text is not kept, and which setting would keep it.
func (r *runRecord) explainLostText(v runfolder.Verdict) string {
	switch {
	case v.Fate == runfolder.FateRefused:
		return "its text is not at hand: REJECTED holds no such message, or not any more; name the run's broker with --broker.url"
	case !v.Fate.Used():
		return "its text is not kept: a group that is dropped leaves the stream, and only the record tells of it"
	}
	return fmt.Sprintf("its text is not kept: %s has no batch of step %d; trainer.checkpoint.batches (%d) says how many of the newest are kept, -1 is all, and trainer.checkpoint.batch_bytes (%d) how many bytes they may take, 0 is any number",
		filepath.Join(r.record.Dir, "batches"), v.Step, r.Config.Trainer.Checkpoint.Batches, r.Config.Trainer.Checkpoint.BatchBytes)
}

// stepRecord returns a step's record.
func (r *runRecord) stepRecord(step int64) (*checkpoint.Record, error) {
	rec, err := r.record.Step(step)
	if missing := (*runfolder.NoStepError)(nil); errors.As(err, &missing) {
		return nil, fault.Usagef("--%w", err)
	}
	return rec, err
}
