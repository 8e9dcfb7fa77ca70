package shadow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/relearn"
)

// Run learns each step that the run makes until the run's last, or until ctx ends, which is no error. It goes on from the shadow's newest
// checkpoint if there is one; otherwise it begins at a full checkpoint of the run, which it waits for. The run's store is only read.
func Run(ctx context.Context, cfg Config, deps Deps) error {
	deps, err := deps.withDefaults()
	if err != nil {
		return err
	}
	if err := cfg.Checkpoint.Validate(); err != nil {
		return err
	}
	err = openAndFollow(ctx, cfg, deps)
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Cause(ctx)) || errors.Is(err, context.Canceled)) {
		return nil
	}
	return err
}

func openAndFollow(ctx context.Context, cfg Config, deps Deps) (err error) {
	s, err := openShadow(ctx, cfg, deps)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.closeRooms()) }()
	return s.followRun(ctx)
}

// tokenizerFile is the tokenizer in a checkpoint's folder.
const tokenizerFile = "tokenizer.json"

// shadow is a shadow at work.
type shadow struct {
	cfg  Config
	deps Deps

	store    *checkpoint.Store
	engine   gpu.Engine
	learner  *learner.Learner
	follower *follower
	fulls    checkpoint.Schedule
	// tokenizer is the tokenizer.json that checkpoints carry; nil if there is none.
	tokenizer []byte

	// step is the last step of the run that the shadow has dealt with, saved that of its newest checkpoint.
	step, saved int64
	counts      counts
	totals      checkpoint.Totals
}

// counts are the shadow's counts since it began.
type counts struct {
	// missed are steps of the run whose batch was gone before the shadow came to it, empty those whose trajectories the shadow all refused.
	missed, empty int64
}

// openShadow takes the shadow's store and gives a learner the state that the shadow goes on from.
func openShadow(ctx context.Context, cfg Config, deps Deps) (_ *shadow, err error) {
	s := &shadow{cfg: cfg, deps: deps}
	opened := false
	defer func() {
		if !opened {
			err = errors.Join(err, s.closeRooms())
		}
	}()
	if s.store, err = checkpoint.Open(cfg.Checkpoint); err != nil {
		return nil, err
	}
	s.store.After = deps.After
	c, damage, err := s.store.Load()
	if c != nil {
		damage = append(damage, c.PassedOver...)
	}
	for _, d := range damage {
		deps.Log.Warn("checkpoint passed over", "dir", d.Dir, "file", d.File, "want", d.Want, "have", d.Have)
	}
	if err != nil {
		return nil, err
	}
	if c != nil {
		err = s.goOn(ctx, c)
	} else {
		err = s.beginAtRun(ctx)
	}
	if err != nil {
		return nil, err
	}
	s.follower = &follower{dir: deps.Run, once: deps.Once, log: deps.Log, step: s.step}
	if err := deps.Begun(s.step); err != nil {
		return nil, err
	}
	opened = true
	return s, nil
}

// beginAttempts bounds how often a shadow takes up another checkpoint of the run because the one that it read was removed meanwhile.
const beginAttempts = 5

// beginAtRun begins the shadow at a full checkpoint of the run, and makes that its own first.
func (s *shadow) beginAtRun(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		step, err := s.awaitCheckpoint(ctx)
		if err != nil {
			return err
		}
		dir := checkpoint.StepDir(s.deps.Run, step)
		c, err := checkpoint.Read(dir, step)
		if err == nil {
			err = s.openLearner(ctx, c)
		}
		if err == nil {
			err = s.openReference(ctx, step)
		}
		if err == nil {
			s.step = step
			return s.saveStart(ctx, c)
		}
		if _, gone := os.Stat(filepath.Join(dir, gpu.ConfigFile)); gone == nil || attempt == beginAttempts {
			return fmt.Errorf("begin at step %d of the run: %w", step, err)
		}
		s.deps.Log.Info("the run has removed the checkpoint that the shadow was to begin at", "step", step)
		if err := s.closeEngines(); err != nil {
			return err
		}
	}
}

// awaitCheckpoint waits until the run has the full checkpoint that the shadow begins at, and returns its step.
func (s *shadow) awaitCheckpoint(ctx context.Context) (int64, error) {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		steps, err := checkpoint.FullSteps(s.deps.Run)
		if err != nil {
			return 0, err
		}
		for _, step := range steps {
			if s.deps.From == Newest || s.deps.From == step {
				return step, nil
			}
		}
		// A run that has gone beyond the step makes its checkpoint no more.
		if len(steps) > 0 && steps[0] > s.deps.From {
			return 0, fmt.Errorf("begin at step %d: %w", s.deps.From, &checkpoint.NoCheckpointError{Step: s.deps.From, Have: steps})
		}
		if s.deps.Once {
			return 0, fmt.Errorf("begin at a checkpoint of the run: %s has no full one", s.deps.Run)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// openLearner makes a learner with the state of a full checkpoint.
func (s *shadow) openLearner(ctx context.Context, c *checkpoint.Checkpoint) (err error) {
	if s.engine, err = s.deps.OpenPolicy(ctx, c.Dir); err != nil {
		return err
	}
	s.tokenizer, err = os.ReadFile(filepath.Join(c.Dir, tokenizerFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.learner, err = learner.New(s.cfg.Config, learner.Deps{
		Engine: s.engine, NewEngine: s.deps.NewEngine, Scratch: s.store.Scratch("learner"), Tokenizer: s.tokenizer,
		KeepTokens: true, Log: s.deps.Log, Now: s.deps.Now,
	})
	if err != nil {
		return err
	}
	if err := s.learner.Restore(ctx, relearn.StateOf(c)); err != nil {
		return err
	}
	// The versions of a shadow are not published, so that its steps are learnt again to the bit or not at all.
	s.fulls = checkpoint.NewSchedule(s.cfg.Checkpoint, s.deps.Steps, s.engine.Limits().Repeats)
	return nil
}

// openReference opens the frozen policy of the KL term: the run's, or the shadow's own where the shadow began at version 0 of a run that
// keeps none.
func (s *shadow) openReference(ctx context.Context, step int64) error {
	if !s.learner.NeedsReference() {
		return nil
	}
	return s.learner.OpenReference(func(reference gpu.Engine) error {
		for _, store := range []string{s.deps.Run, s.store.Dir()} {
			if checkpoint.ReferenceDir(store) != "" {
				return checkpoint.LoadReference(ctx, store, reference)
			}
		}
		if step != 0 {
			return errors.New("the loss reads the policy that the run began with, and the run keeps none, since trainer.loss.kl.coef is 0 there: " +
				"begin the shadow at version 0, with --from 0, or leave the KL term out")
		}
		return s.store.Reference(ctx, 0, s.engine, s.tokenizer, reference)
	})
}

// followRun learns the run's steps until there are no more.
func (s *shadow) followRun(ctx context.Context) error {
	for s.step < s.deps.Steps {
		r, err := s.follower.nextLine(ctx)
		if errors.Is(err, errNoMore) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.learnLine(ctx, r); err != nil {
			return fmt.Errorf("step %d: %w", r.Step, err)
		}
	}
	return nil
}

// learnLine does the step of a line of the run's record. A batch that is gone is counted, and the run is followed from the next.
func (s *shadow) learnLine(ctx context.Context, r *checkpoint.Record) error {
	began := s.deps.Now()
	if lacking := r.Step - s.step - 1; lacking > 0 {
		s.missSteps(s.step+1, r.Step-1, "the run's record has no line of them")
	}
	s.step = r.Step
	kept, err := checkpoint.ReadBatch(s.deps.Run, r)
	if errors.Is(err, checkpoint.ErrNoBatch) {
		s.missSteps(r.Step, r.Step, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	a, err := s.cfg.admitBatch(r, kept)
	if err != nil {
		return err
	}
	if a.batch == nil {
		s.counts.empty++
		s.deps.Log.Warn("the shadow may use no trajectory of the step", "step", r.Step, "refused", len(a.rejected))
		return nil
	}
	stats, err := s.learner.Learn(ctx, a.batch)
	if err != nil {
		return err
	}
	s.deps.After("learn")
	done := &learntStep{line: r, admitted: a, stats: stats, began: began}
	if err := s.saveStep(ctx, done); err != nil {
		return err
	}
	s.deps.After("save")
	return s.deps.Report(Step{Number: r.Step, At: s.deps.Now().UTC(), Metrics: done.metrics})
}

// missSteps counts steps that the shadow cannot learn.
func (s *shadow) missSteps(first, last int64, why string) {
	s.counts.missed += last - first + 1
	s.deps.Log.Warn("steps of the run are missed: the shadow goes on without them", "first", first, "last", last, "why", why,
		"missed", s.counts.missed)
}

// learntStep is a step that the learner has done.
type learntStep struct {
	line *checkpoint.Record
	*admitted
	stats   *learner.Stats
	began   time.Time
	metrics map[string]float64
}

// closeEngines closes the learner and the policy.
func (s *shadow) closeEngines() error {
	var errs []error
	if s.learner != nil {
		errs = append(errs, s.learner.Close())
	}
	if s.engine != nil {
		errs = append(errs, s.engine.Close())
	}
	s.learner, s.engine = nil, nil
	return errors.Join(errs...)
}

// closeRooms closes everything that openShadow opened.
func (s *shadow) closeRooms() error {
	err := s.closeEngines()
	if s.store != nil {
		err = errors.Join(err, s.store.Close())
	}
	return err
}
