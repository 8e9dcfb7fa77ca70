package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/metrics"
)

// trainer is the state of the loop: the rooms, and the values that pass between the stages of a step.
type trainer struct {
	cfg  Config
	deps Deps

	learner *learner.Learner
	intake  *intake
	control *control
	reuse   reuse
	store   *checkpoint.Store
	report  *report

	follower *follower
	guard    *guard
	// poisoned has the trajectories that made a step fail.
	poisoned *poisoned

	// step counts the steps done; the policy version equals it.
	step int64
	// batch is the batch in hand; nil at version 0.
	batch *batch.Batch
	// batched is when it was complete.
	batched time.Time
	// version is the newest version, published or about to be.
	version   version
	publisher *publisher
	// fulls decides which checkpoints are full.
	fulls checkpoint.Schedule
	// otherwise is the light checkpoint whose steps came out otherwise when they were learnt again; nil where they did not.
	otherwise *checkpoint.Checkpoint
	// recorded is the record of the newest checkpoint, and metrics are its step's.
	recorded checkpoint.Record
	// drift is how far the newest version came out from the published version when it was learnt again; nil where it was not, and at every
	// later step.
	drift    *checkpoint.Drift
	metrics  map[string]float64
	settings settings
}

// startTrainer opens the checkpoints, loads the newest or makes version 0, takes the run, and opens the feed where it left off. fence ends
// ctx when another trainer takes the run.
func startTrainer(ctx context.Context, fence context.CancelCauseFunc, cfg Config, deps Deps, known *poisoned) (_ *trainer, err error) {
	deps, err = deps.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("trainer configuration: %w", err)
	}
	t := &trainer{
		cfg: cfg, deps: deps, poisoned: known, control: newControl(cfg, deps), report: newReport(deps),
		reuse: reuse{cfg: cfg, poisoned: known},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.closeRooms())
		}
	}()
	if t.store, err = checkpoint.Open(cfg.Checkpoint); err != nil {
		return nil, err
	}
	t.store.After, t.store.Rewrites = deps.After, deps.Rewrites
	t.fulls = checkpoint.NewSchedule(cfg.Checkpoint, cfg.Steps, canLearnAgain(cfg.Checkpoint, deps.Engine))
	if t.learner, err = learner.New(cfg.Config, deps.learnerDeps(t.store.Scratch("learner"), cfg.Archive.Bytes > 0 && cfg.Archive.Samples != 0)); err != nil {
		return nil, err
	}
	t.publisher = newPublisher(cfg.Publish, deps, t.store.Scratch("publish"))
	if t.intake, err = newIntake(cfg, deps, t.store, t.renewCheckpoint); err != nil {
		return nil, err
	}
	c, fresh, err := t.loadNewest(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.resumeFrom(ctx, fence, c); err != nil {
		return nil, err
	}
	if fresh {
		return t, t.saveStep(ctx)
	}
	deps.Log.Info("resumed", "step", t.step, "checkpoint", t.store.Path(t.step), "open_groups", t.intake.OpenGroups())
	return t, nil
}

// loadNewest returns the newest checkpoint that is whole, or version 0 where there is none.
func (t *trainer) loadNewest(ctx context.Context) (c *checkpoint.Checkpoint, fresh bool, err error) {
	c, damage, err := t.store.Load()
	if c != nil {
		damage = append(damage, c.PassedOver...)
	}
	for _, d := range damage {
		t.deps.Log.Warn("checkpoint passed over", "dir", d.Dir, "file", d.File, "want", d.Want, "have", d.Have)
	}
	if err != nil || c != nil {
		return c, false, err
	}
	if err := t.refuseOrphan(ctx); err != nil {
		return nil, false, err
	}
	if c, err = t.makeVersionZero(ctx); err != nil {
		return nil, false, err
	}
	// That may have taken long enough for another trainer to begin.
	return c, true, t.refuseOrphan(ctx)
}

// refuseOrphan keeps a run whose checkpoint folder was lost from beginning again under the same name.
func (t *trainer) refuseOrphan(ctx context.Context) error {
	c, err := t.control.readControl(ctx)
	if err != nil {
		return err
	}
	// Either may be gone without the other.
	published, err := t.deps.Stream.Published(ctx)
	if err != nil {
		return fmt.Errorf("read the newest published version: %w", err)
	}
	if c != nil {
		published = max(published, c.PolicyVersion)
	}
	if published == 0 {
		return nil
	}
	return fmt.Errorf("run %s has published version %d, but %s holds no checkpoint: name the run's own checkpoint folder, or a new run",
		t.deps.Stream.Name(), published, t.store.Dir())
}

// makeVersionZero returns a checkpoint of the starting weights: the engine's, after the cold start if there is one.
func (t *trainer) makeVersionZero(ctx context.Context) (*checkpoint.Checkpoint, error) {
	if err := t.imitateDemonstrations(ctx); err != nil {
		return nil, err
	}
	s, err := t.learner.Snapshot()
	if err != nil {
		return nil, err
	}
	if err := t.publisher.checkManifestFits(ctx, 0); err != nil {
		return nil, fmt.Errorf("publish version 0: %w", err)
	}
	return &checkpoint.Checkpoint{
		State: checkpoint.State{
			Run: t.deps.Stream.Name(), Random: s.Random, SavedAt: t.deps.Now().UTC(),
			Eta: t.cfg.Eta, Depth: t.cfg.Depth, ConfiguredEta: t.cfg.Eta, ConfiguredDepth: t.cfg.Depth, Settings: t.deps.Settings,
		},
	}, nil
}

// imitateDemonstrations has the policy imitate demonstrations, if that is configured, and reports how it goes.
func (t *trainer) imitateDemonstrations(ctx context.Context) error {
	steps := t.cfg.ColdStart.Steps
	if steps == 0 {
		return nil
	}
	if t.deps.Demonstrations == nil {
		return errors.New("cold start: there are no demonstrations")
	}
	began := t.deps.Now()
	report := func(step, steps int64, loss float64) {
		t.deps.Observer(schemas.Event{
			Run: t.deps.Stream.Name(), Type: schemas.EventColdStart, At: t.deps.Now().UTC(), Role: "trainer", Step: step,
			Metrics: map[string]float64{
				metrics.ColdStartLoss.Name: loss, metrics.ColdStartStep.Name: float64(step), metrics.ColdStartSteps.Name: float64(steps),
				metrics.TimeColdStart.Name: t.deps.Now().Sub(began).Seconds(),
			},
		})
	}
	var last int64
	var lastLoss float64
	err := learner.Imitate(ctx, t.cfg.ColdStart, t.deps.Engine, t.deps.Demonstrations, func(step int64, loss float64) {
		t.deps.Log.Debug("cold start", "step", step, "loss", loss)
		report(step, steps, loss)
		last, lastLoss = step, loss
	})
	if err != nil {
		return err
	}
	if last < steps {
		t.deps.Log.Info("cold start ended early: the demonstrations are learnt", "step", last, "of", steps, "loss", lastLoss)
		report(last, last, lastLoss)
	}
	return nil
}

// resumeFrom takes up a checkpoint's state, and with it the run.
func (t *trainer) resumeFrom(ctx context.Context, fence context.CancelCauseFunc, c *checkpoint.Checkpoint) error {
	s := &c.State
	if s.Run != t.deps.Stream.Name() {
		return fmt.Errorf("checkpoint %s is of run %q, this is run %q: name another checkpoint folder or the same run", t.store.Path(s.Step), s.Run, t.deps.Stream.Name())
	}
	if t.poisoned.anew {
		// The engine may have gathered a part of a gradient. All else that this changes is loaded now.
		if err := t.learner.Discard(ctx); err != nil {
			return err
		}
	}
	if err := t.restoreLearner(ctx, c); err != nil {
		return err
	}
	t.step = s.Step
	t.fulls.GoOn(s)
	t.version = version{number: s.Step, at: s.SavedAt}
	t.recorded, t.metrics = c.Record, s.Metrics
	t.settings.compareSettings(s, t.deps)
	t.report.resumeFrom(s)
	if err := t.takeRun(ctx, s); err != nil {
		return err
	}
	t.guard = watchSeat(ctx, t.deps.Stream, fence, t.deps.Log)
	if err := t.control.chooseBounds(ctx, s); err != nil {
		return err
	}
	t.follower = followControl(ctx, t.deps.Stream, t.deps.Log)
	if err := t.reuse.loadBatch(t.store.Dir(), c, t.deps); err != nil {
		return err
	}
	return t.intake.Open(ctx, c, t.poisoned, t.control.inForce, t.control.limits, t.reuse.countAgain(t.step, t.control.eta))
}

// takeRun makes this trainer the run's only one. A trainer that begins a step anew holds the run; taking the run once more would lose the
// mark of purged messages.
func (t *trainer) takeRun(ctx context.Context, s *checkpoint.State) error {
	if t.poisoned.anew {
		return t.deps.Stream.Check(ctx)
	}
	from, _ := streamPosition(s)
	if err := t.deps.Stream.Take(ctx, from); err != nil {
		return err
	}
	t.poisoned.held = true
	return nil
}

// closeRooms ends everything that startTrainer began.
func (t *trainer) closeRooms() error {
	var errs []error
	if t.guard != nil {
		t.guard.stop()
	}
	if t.follower != nil {
		t.follower.stop()
	}
	if t.learner != nil {
		errs = append(errs, t.learner.Close())
	}
	if t.intake != nil {
		errs = append(errs, t.intake.CloseArchive())
		t.intake.Close()
	}
	if t.publisher != nil {
		errs = append(errs, t.publisher.removeFolders())
	}
	if t.store != nil {
		errs = append(errs, t.store.Close())
	}
	return errors.Join(errs...)
}
