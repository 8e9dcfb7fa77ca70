package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/relearn"
)

// nextBatch waits for a batch, until the run is drained.
func (t *trainer) nextBatch(ctx context.Context) (err error) {
	began := t.deps.Now()
	wait := t.follower.batchContext()
	t.batch, err = t.takeBatch(ctx, wait)
	t.batched = t.deps.Now()
	t.report.stats.wait = t.batched.Sub(began)
	if err != nil && errors.Is(context.Cause(wait), errDrained) {
		return errDrained
	}
	if err != nil {
		return err
	}
	if t.batch.Uses() > 1 {
		return nil // it was kept at its first use
	}
	return t.intake.KeepBatch(ctx, t.batch)
}

// learnBatch trains on the batch.
func (t *trainer) learnBatch(ctx context.Context) (err error) {
	t.report.stats.learnt, err = t.learner.Learn(ctx, t.batch)
	return err
}

// commitStep counts the step as done, adopts the bounds that operators have chosen since, and decides what follows from the new version.
func (t *trainer) commitStep(ctx context.Context) error {
	t.step++
	t.settings.inForce = t.deps.Settings
	before := t.control.inForce
	if err := t.control.adoptChanges(ctx, t.step); err != nil {
		return err
	}
	t.intake.Used(t.batch, t.report.stats.learnt.Tokens, t.batched, t.step)
	t.intake.SetLimits(t.control.limits)
	t.reuse.keepBatch(t.batch)
	return t.intake.Commit(ctx, t.batch, t.step, before, t.control.inForce, t.reuse.countAgain(t.step, t.control.eta))
}

// saveStep writes the checkpoint of the step.
func (t *trainer) saveStep(ctx context.Context) error {
	began := t.deps.Now()
	t.report.stats.refusals = t.intake.TakeRefusals()
	t.report.stats.endings = t.intake.EndingMetrics()
	t.report.measureBatch(t.batch)
	if err := t.deps.Stream.Check(ctx); err != nil {
		return err
	}
	if err := t.intake.File(ctx); err != nil {
		return err
	}
	c, err := t.newCheckpoint(began.UTC())
	if err != nil {
		return err
	}
	c.Record = t.newRecord(&c.State)
	c.Record.Changed = append(slices.Clip(t.settings.changed), t.control.changed...)
	c.Batch = t.batch.Deliveries()
	if t.batch != nil {
		c.Record.Groups = checkpoint.RecordBatch(t.batch, t.report.stats.learnt.Advantages)
		if uses := t.batch.Uses(); uses > 1 {
			c.Record.Use = uses
		}
		c.Record.Result = &checkpoint.Result{Numbers: checkpoint.FiniteNumbers(t.report.stats.learnt.Metrics())}
		c.State.Metrics = checkpoint.FiniteNumbers(t.report.stepMetrics(began, t.intake.Counts(), t.control.writtenBounds()))
	}
	c.State.Light = !t.fulls.IsFullDue(t.step, began)
	if err := t.store.Save(ctx, c); err != nil {
		return err
	}
	t.metrics = c.State.Metrics
	t.fulls.NoteSaved(&c.State, t.deps.Now(), t.deps.Now().Sub(began))
	t.recorded, t.drift = c.Record, nil
	t.intake.Recorded()
	t.settings.changed, t.control.changed = nil, nil
	t.version = version{number: t.step, at: c.State.SavedAt}
	t.report.stats.save = t.deps.Now().Sub(began)
	return nil
}

// renewCheckpoint writes the checkpoint of the newest step anew, with everything that has happened since. Its tensors stay.
func (t *trainer) renewCheckpoint(ctx context.Context) error {
	if err := t.rewriteCheckpoint(ctx, t.store.Renew); err != nil {
		return err
	}
	t.deps.After("renew")
	return nil
}

// completeCheckpoint makes the newest checkpoint a full one, unless it is.
func (t *trainer) completeCheckpoint(ctx context.Context) error {
	if !t.fulls.IsLight() {
		return nil
	}
	began := t.deps.Now()
	if err := t.rewriteCheckpoint(ctx, t.store.Complete); err != nil {
		return err
	}
	t.otherwise = nil
	t.fulls.NoteFull(t.step, t.deps.Now(), t.deps.Now().Sub(began))
	t.deps.After("complete")
	return nil
}

// rewriteCheckpoint has write write the checkpoint of the newest step anew.
func (t *trainer) rewriteCheckpoint(ctx context.Context, write func(context.Context, *checkpoint.Checkpoint) error) error {
	if err := t.deps.Stream.Check(ctx); err != nil {
		return err
	}
	if err := t.intake.File(ctx); err != nil {
		return err
	}
	c, err := t.newCheckpoint(t.version.at)
	if err != nil {
		return err
	}
	c.Record = t.newRecord(&c.State)
	c.Record.Continue(t.recorded)
	c.Record.Groups, c.Record.Batch, c.Record.Changed = t.recorded.Groups, t.recorded.Batch, t.recorded.Changed
	c.Record.Use = t.recorded.Use
	c.Record.Result, c.Record.Began, c.State.Metrics = t.recorded.Result, t.recorded.Began, t.metrics
	c.Record.Drift = cmp.Or(t.drift, t.recorded.Drift)
	c.Record.Rejected = append(slices.Clone(t.recorded.Rejected), c.Record.Rejected...)
	c.Record.Dropped = append(slices.Clone(t.recorded.Dropped), c.Record.Dropped...)
	if err := write(ctx, c); err != nil {
		return err
	}
	t.recorded = c.Record
	t.intake.Recorded()
	return nil
}

// newCheckpoint returns the whole state as a checkpoint, without the record.
func (t *trainer) newCheckpoint(at time.Time) (*checkpoint.Checkpoint, error) {
	c := &checkpoint.Checkpoint{
		State: checkpoint.State{
			Run: t.deps.Stream.Name(), Step: t.step,
			Eta: t.control.eta, Depth: t.control.depth, ConfiguredEta: t.cfg.Eta, ConfiguredDepth: t.cfg.Depth,
			Limits: t.control.limits, Totals: t.report.totals, SavedAt: at, Settings: t.settings.inForce,
		},
		Policy: t.deps.Engine, Tokenizer: t.deps.Tokenizer, Files: t.deps.Files,
	}
	if err := relearn.FillCheckpoint(c, t.learner); err != nil {
		return nil, err
	}
	t.intake.Save(c)
	return c, nil
}

// newRecord returns the step's record for an audit, without its batch.
func (t *trainer) newRecord(s *checkpoint.State) checkpoint.Record {
	rejected, dropped := t.intake.Refused()
	r := checkpoint.Record{
		Step: s.Step, Stream: s.Stream, Created: s.Created, Losses: s.Losses, Rejected: rejected, Dropped: dropped,
		NextCursor: s.Issue.NextCursor, Again: s.Issue.Again, Settings: settingsHash(s.Settings),
	}
	if t.publisher.notedAt == s.Step-1 {
		r.Began = t.publisher.noted
	}
	for _, g := range s.Issue.Open {
		r.AddOpen(g.Group().ID(), g.Ticket.Prompt.Source)
	}
	return r
}

// publishVersion makes the version visible to the inference consumers.
func (t *trainer) publishVersion(ctx context.Context) error {
	began := t.deps.Now()
	if err := t.publisher.publishVersion(ctx, t.version); err != nil {
		if errors.Is(err, streams.ErrFenced) && t.deps.Stream.Check(ctx) == nil {
			// No other trainer has the run: the published version is of a step that this run did before it went back.
			err = t.abandonedError(ctx)
		}
		return fmt.Errorf("publish version %d: %w", t.version.number, err)
	}
	if t.deps.Metrics != nil {
		t.deps.Metrics.version.Set(float64(t.step))
	}
	t.report.stats.publish = t.deps.Now().Sub(began)
	return nil
}

// putControl publishes the version and the oldest usable version in control.
func (t *trainer) putControl(ctx context.Context) error {
	began := t.deps.Now()
	if err := t.control.putVersion(ctx, t.step, t.intake.Unfillable()); err != nil {
		return err
	}
	t.report.stats.publish += t.deps.Now().Sub(began)
	t.deps.Observer(schemas.Event{
		Run: t.deps.Stream.Name(), Type: schemas.EventVersionPublished, At: t.deps.Now().UTC(), Role: "trainer",
		Step: t.step, PolicyVersion: t.step,
	})
	return nil
}

// ErrAbandoned is returned when a step came out otherwise than the version of it that is published: the trainer went back to an older
// checkpoint, or learnt the steps of a light one again elsewhere than the run was trained.
var ErrAbandoned = errors.New("it is published with other weights")

// abandonedError explains how to go on when the published version has other weights. A version is not replaced: engines sample from it, and
// trajectories that wait in the stream name it. The checkpoint that it names has weights.
func (t *trainer) abandonedError(ctx context.Context) error {
	if c := t.otherwise; c != nil {
		return fmt.Errorf("%w: the steps %d to %d were learnt again from their batches and came out otherwise than the run made them, as on a "+
			"processor of another kind, with another build of weir, or under settings that were changed. The checkpoints are as they were: "+
			"start the run as and where it was trained; or go on from step %d as a new run, with --run.name and --model.folder %s "+
			"--trainer.cold_start.steps 0", ErrAbandoned, c.Full.State.Step+1, c.State.Step, c.Full.State.Step, c.Full.Dir)
	}
	if err := t.completeCheckpoint(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: the run went back to an older checkpoint, and the step came out otherwise than before. "+
		"A published version is never replaced: go on from here as a new run, with --run.name and --model.folder %s --trainer.cold_start.steps 0; "+
		"or remove that folder and put back the checkpoints that were newer", ErrAbandoned, t.store.Path(t.step))
}

// reportDone reports that the run has come to its end.
func (t *trainer) reportDone() {
	t.deps.Log.Info("training ended", "step", t.step, "checkpoint", t.store.Path(t.step))
	t.deps.Observer(schemas.Event{
		Run: t.deps.Stream.Name(), Type: schemas.EventRunDone, At: t.deps.Now().UTC(), Role: "trainer",
		Step: t.step, PolicyVersion: t.step, Message: t.store.Path(t.step),
	})
}
