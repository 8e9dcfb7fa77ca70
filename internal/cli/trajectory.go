package cli

import (
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

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

func (a *app) trajectoryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "trajectory ID", Short: "Read a rollout as text, and what became of it", Args: cobra.ExactArgs(1),
		Long: `Trajectory prints a rollout by its id, such as g000123-a0-5: the prompt, what the policy said, its calls, what they
brought, its answer, the reward with its components, and which step trained on it or why none did. A group's id, or
any beginning of an id, lists what the record has of it.

The text is that of the batches that the trainer keeps beside its checkpoints, in <trainer.checkpoint.dir>/batches:
trainer.checkpoint.batches says how many. A refused trajectory is looked for in REJECTED, where the run's broker, or
its store, is at hand. Of one that was dropped with its group only the record is left.`,
		Example: "  weir trajectory g000012-a0\n  weir trajectory g000012-a0-3\n  weir trajectory g000012-a0-3 --run.name mine -o json",
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := a.openRecord(cmd)
		if err != nil {
			return err
		}
		found, err := r.find(args[0])
		if err != nil {
			return err
		}
		if !r.whole(found, args[0]) {
			refused, err := r.refused(cmd.Context(), args[0])
			if err != nil {
				fmt.Fprintf(a.err, "REJECTED was not looked at: %v\n", err)
			}
			found = merge(found, refused)
		}
		switch {
		case len(found) == 0:
			return fmt.Errorf("no trajectory of run %s has an id that begins with %q; weir audit --step N lists those of a step", r.cfg.Run.Name, args[0])
		case slices.ContainsFunc(found, func(t told) bool { return t.ID != found[0].ID }):
			return r.list(found, format.json())
		}
		return r.print(found[0], format.json(), true)
	}
	return cmd
}

// runRecord is what a run's checkpoint folder tells of its trajectories.
type runRecord struct {
	*session
	dir       string
	tokenizer tokenizer.Codec // nil until it is read
}

// told is what is known of one trajectory: what became of it, and the trajectory itself where that is kept.
type told struct {
	fate
	trajectory *schemas.Trajectory
}

// openRecord reads the record of the run's steps.
func (a *app) openRecord(cmd *cobra.Command) (*runRecord, error) {
	cfg, err := a.loadWritten(cmd)
	if err != nil {
		return nil, err
	}
	s, err := a.sessionOf(cfg)
	if err != nil {
		return nil, err
	}
	r := &runRecord{session: s, dir: cfg.Trainer.Checkpoint.Dir}
	for rec, err := range checkpoint.Records(r.dir) {
		if rec == nil && !errors.As(err, new(*checkpoint.Damage)) {
			return nil, err
		}
		return r, nil
	}
	return nil, fmt.Errorf("%s has no record of steps: is --run.name %s the run?", r.dir, cfg.Run.Name)
}

// each goes through the record of steps. Lines that were changed are passed over with a word: weir audit lists them.
func (r *runRecord) each(use func(*checkpoint.Record) (more bool)) error {
	changed := 0
	for rec, err := range checkpoint.Records(r.dir) {
		if damage := (*checkpoint.Damage)(nil); errors.As(err, &damage) {
			if changed++; changed == 1 {
				fmt.Fprintf(r.err, "%v; weir audit lists what is wrong with the record\n", err)
			}
		} else if err != nil {
			return err
		}
		if rec != nil && !use(rec) {
			return nil
		}
	}
	return nil
}

// find lists what the record has of an id: exactly it, else all that begin with it.
func (r *runRecord) find(id string) ([]told, error) {
	var exact, begin []told
	err := r.each(func(rec *checkpoint.Record) bool {
		for _, f := range fatesOf(rec) {
			if f.ID == id {
				exact = []told{{fate: f}}
				return false
			}
			if strings.HasPrefix(f.ID, id) {
				begin = append(begin, told{fate: f})
			}
		}
		return true
	})
	if exact != nil {
		return exact, err
	}
	return begin, err
}

// whole says that the record alone answers: the trajectory was used up by a step, or dropped.
func (r *runRecord) whole(found []told, id string) bool {
	return len(found) == 1 && found[0].ID == id && found[0].State != fateRefused
}

// merge adds to what the record has what REJECTED has: the trajectories themselves, and those that no step has noted yet.
func merge(found, refused []told) []told {
	for _, r := range refused {
		at := slices.IndexFunc(found, func(f told) bool { return f.ID == r.ID })
		switch {
		case at < 0:
			found = append(found, r)
		case found[at].State == fateRefused && found[at].trajectory == nil:
			found[at].trajectory, found[at].Detail = r.trajectory, r.Detail
		}
	}
	return found
}

// refused looks for an id, or its beginning, in REJECTED: at the run's broker, else in its store. Without either there is
// nothing to look at.
func (r *runRecord) refused(ctx context.Context, id string) ([]told, error) {
	if _, err := os.Stat(r.cfg.Broker.StoreDir); r.cfg.Broker.URL == "" && runBroker(r.cfg.Folder()) == "" && err != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	run, _, leave, err := r.visit(ctx, streams.RoleViewer)
	if err != nil {
		return nil, err
	}
	defer leave()
	var out []told
	for m, err := range run.Rejected(ctx) {
		if err != nil {
			return out, err
		}
		t := new(schemas.Trajectory)
		if kind, _, err := schemas.Peek(m.Data); err != nil || kind != schemas.KindTrajectory || schemas.Unmarshal(m.Data, t) != nil {
			continue
		}
		if strings.HasPrefix(t.ID, id) {
			out = append(out, told{fate{
				ID: t.ID, Group: t.Group, State: fateRefused, Step: -1, Sequence: m.Original, Reason: string(m.Reason), Detail: m.Detail,
			}, t})
		}
	}
	return out, nil
}

// list prints a line for each trajectory.
func (r *runRecord) list(found []told, asJSON bool) error {
	w := table.NewWriter()
	w.SetOutputMirror(r.out)
	w.SetStyle(table.StyleLight)
	const others = 14 + 10 + 12 + 8 + 8 // id, sequence, versions, reward, borders
	fold(w, columns(r.out), 2, others)
	w.AppendHeader(table.Row{"id", "what became of it", "sequence", "versions", "reward"})
	for _, t := range found {
		if asJSON {
			if err := r.printJSON(t.fate); err != nil {
				return err
			}
			continue
		}
		versions, reward := "", ""
		if t.OldestVersion != nil {
			versions = fmt.Sprintf("%d to %d", *t.OldestVersion, *t.NewestVersion)
		}
		if t.Reward != nil {
			reward = fmt.Sprintf("%.3f", *t.Reward)
		}
		w.AppendRow(table.Row{report.Plain(t.ID), t.text(), t.Sequence, versions, reward})
	}
	if !asJSON {
		w.Render()
	}
	return nil
}

// print prints a trajectory whole, and says where its text would be if that is not kept.
func (r *runRecord) print(t told, asJSON, explain bool) error {
	if t.trajectory == nil && t.State != fateDropped && t.State != fateRefused {
		kept, err := r.batch(t.Step)
		if err != nil && !errors.Is(err, checkpoint.ErrNoBatch) {
			return err
		}
		if at := slices.IndexFunc(kept, func(k *schemas.Trajectory) bool { return k.ID == t.ID }); at >= 0 {
			t.trajectory = kept[at]
		}
	}
	var rollout *report.Rollout
	if t.trajectory != nil {
		decode, err := r.decoder()
		if err != nil {
			return err
		}
		rollout = report.NewRollout(t.trajectory, decode)
	}
	if asJSON {
		return r.printJSON(struct {
			Fate    fate            `json:"fate"`
			Rollout *report.Rollout `json:"rollout"`
		}{t.fate, rollout})
	}
	fmt.Fprintf(r.out, "%s  %s\n", report.Plain(t.ID), t.text())
	if rollout != nil {
		return rollout.Print(r.out, coloured(r.out, r.environ))
	}
	if explain {
		fmt.Fprintln(r.out, "  "+r.lostText(t.fate))
	}
	return nil
}

// lostText says why a trajectory's text is not to be had, and what would keep it.
func (r *runRecord) lostText(f fate) string {
	switch f.State {
	case fateDropped:
		return "its text is not kept: a group that is dropped leaves the stream, and only the record tells of it"
	case fateRefused:
		return "its text is not at hand: REJECTED holds no such message, or not any more; name the run's broker with --broker.url"
	}
	return fmt.Sprintf("its text is not kept: %s has no batch of step %d; trainer.checkpoint.batches (%d) says how many of the newest are kept, -1 is all, and trainer.checkpoint.batch_bytes (%d) how many bytes they may take, 0 is any number",
		filepath.Join(r.dir, "batches"), f.Step, r.cfg.Trainer.Checkpoint.Batches, r.cfg.Trainer.Checkpoint.BatchBytes)
}

// batch reads the trajectories of a step from the copy that the trainer keeps.
func (r *runRecord) batch(step int64) ([]*schemas.Trajectory, error) {
	rec, err := r.step(step)
	if err != nil {
		return nil, err
	}
	deliveries, err := checkpoint.ReadBatch(r.dir, rec)
	if err != nil {
		return nil, err
	}
	var out []*schemas.Trajectory
	for _, d := range deliveries {
		out = append(out, d.Trajectory)
	}
	return out, nil
}

// step is a step's record.
func (r *runRecord) step(step int64) (found *checkpoint.Record, err error) {
	first, last := int64(-1), int64(-1)
	err = r.each(func(rec *checkpoint.Record) bool {
		if first < 0 {
			first = rec.Step
		}
		if last = rec.Step; rec.Step == step {
			found = rec
		}
		return found == nil
	})
	if err == nil && found == nil {
		err = fault.Usagef("--step %d: the record has steps %d to %d", step, first, last)
	}
	return found, err
}

// decoder turns token ids into text with the tokenizer of the newest checkpoint.
func (r *runRecord) decoder() (func([]int32) string, error) {
	if r.tokenizer == nil {
		folder, _, err := r.checkpoint(-1)
		if err != nil {
			return nil, err
		}
		if r.tokenizer, err = tokenizer.Open(filepath.Join(folder, "tokenizer.json")); err != nil {
			return nil, err
		}
	}
	return r.tokenizer.Decode, nil
}
