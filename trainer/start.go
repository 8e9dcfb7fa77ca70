package trainer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/loss"
)

// trainer is what the loop holds.
type trainer struct {
	cfg  Config
	deps Deps

	step      int64
	eta       int
	depth     int
	random    *rand.PCG
	estimator advantage.Estimator
	objective *loss.Objective
	// toolTokens are those of the batch in hand that no policy sampled and that are trained on all the same.
	toolTokens []int
	// needLogprobs: the estimator reads the log-probabilities at the start of the step.
	needLogprobs bool
	correction   loss.Correction
	proximal     bool // whether ratios need the log-probabilities at the start of the step
	reference    gpu.Engine
	// critic is the policy's own engine where it is a head; nil without one.
	critic gpu.Engine

	store     *checkpoint.Store
	issuer    *issuer
	assembler *batch.Assembler
	feed      Feed
	follower  *follower
	guard     *guard
	// spoilt is what this start knows of trajectories that spoiled a step.
	spoilt *spoilt
	// put are the bounds as the trainer wrote them to control last.
	put bounds
	// deliveries are those that are pending, by sequence: what Reject needs.
	deliveries map[uint64]*Delivery
	// carried are those that the checkpoint holds itself, by sequence, until they have ended.
	carried map[uint64]batch.Delivery
	// settled are the trained sequences to ack once the checkpoint is written.
	settled []uint64
	// lost are groups whose trajectories went with a stream that was made anew.
	lost []checkpoint.RecordDrop
	// losses counts how often the stream had lost messages.
	losses int64
	// quiet is when something last came, told for how long nothing had when that was last said.
	quiet time.Time
	told  time.Duration
	// ended counts the messages that ended otherwise since the last checkpoint, recorded is that one's record.
	// delivered is the highest sequence that the feed gave.
	ended     int
	delivered uint64
	recorded  checkpoint.Record
	purged    uint64
	// unissued is how many messages are read before the tickets are sent that the ticket stream had no room for.
	unissued int
	// version is the newest, published or about to be; its weights are let go of once they are published.
	version Version
	totals  checkpoint.Totals
	result  loss.Result
	now     measures
	// components and sources are the names that became metrics.
	components, sources names
	// settings are those of the last step; changed are those that the next one is trained with otherwise.
	settings map[string]string
	changed  []checkpoint.RecordChange
	// flatBefore are the groups dropped for the step in hand by an earlier process, whose rewards are not known.
	flatBefore int
	// sparse counts the steps of this process for which hardly any group was kept.
	sparse int
	// untold is the step that the checkpoint is of, where nobody was told of it; nil where somebody was.
	untold *untold
}

// start opens the checkpoints, loads the newest or makes version 0, takes the run, and opens the feed where it left off.
// fence ends ctx when another trainer takes the run.
func start(ctx context.Context, fence context.CancelCauseFunc, cfg Config, deps Deps, known *spoilt) (_ *trainer, err error) {
	deps, err = deps.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("trainer configuration: %w", err)
	}
	t := &trainer{cfg: cfg, deps: deps, spoilt: known, deliveries: map[uint64]*Delivery{}, carried: map[uint64]batch.Delivery{}, now: newMeasures(deps.Now())}
	if t.deps.Publisher == nil {
		t.deps.Publisher = newWholePublisher(cfg.Publish, deps)
	}
	if err := t.chooseAdvantage(); err != nil {
		return nil, err
	}
	if err := t.chooseLoss(); err != nil {
		return nil, err
	}
	if err := t.chooseCritic(); err != nil {
		return nil, err
	}
	if t.store, err = checkpoint.Open(cfg.Checkpoint, deps.Folder); err != nil {
		return nil, err
	}
	t.store.After = deps.After
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	c, damage, err := t.store.Load()
	for _, d := range damage {
		deps.Log.Warn("checkpoint passed over", "dir", d.Dir, "file", d.File, "want", d.Want, "have", d.Have)
	}
	if err != nil {
		return nil, err
	}
	fresh := c == nil
	if fresh {
		if err := t.refuseOrphan(ctx); err != nil {
			return nil, err
		}
		if c, err = t.versionZero(ctx); err != nil {
			return nil, err
		}
		// That may have taken long enough for another trainer to begin.
		if err := t.refuseOrphan(ctx); err != nil {
			return nil, err
		}
	}
	if err := t.openReference(ctx, c); err != nil {
		return nil, err
	}
	if err := t.openCritic(ctx, c); err != nil {
		return nil, err
	}
	if err := t.resume(ctx, fence, c); err != nil {
		return nil, err
	}
	if fresh {
		return t, t.save(ctx, nil)
	}
	deps.Log.Info("resumed", "step", t.step, "checkpoint", t.store.Path(t.step), "open_groups", len(t.issuer.open))
	return t, nil
}

// versionZero is the starting weights: the engine's, after the cold start if there is one.
func (t *trainer) versionZero(ctx context.Context) (*checkpoint.Checkpoint, error) {
	if t.cfg.ColdStart.Steps > 0 {
		if t.deps.Demonstrations == nil {
			return nil, errors.New("cold start: there are no demonstrations")
		}
		began := t.deps.Now()
		tell := func(step, steps int64, loss float64) {
			t.deps.Observer(schemas.Event{
				Run: t.deps.Stream.Run(), Type: EventColdStart, At: t.deps.Now().UTC(), Role: "trainer", Step: step,
				Metrics: map[string]float64{
					"cold_start/loss": loss, "cold_start/step": float64(step), "cold_start/steps": float64(steps),
					"time/cold_start": t.deps.Now().Sub(began).Seconds(),
				},
			})
		}
		var last int64
		var learnt float64
		err := Imitate(ctx, t.cfg.ColdStart, t.deps.Engine, t.deps.Demonstrations, func(step int64, loss float64) {
			t.deps.Log.Debug("cold start", "step", step, "loss", loss)
			tell(step, t.cfg.ColdStart.Steps, loss)
			last, learnt = step, loss
		})
		if err != nil {
			return nil, err
		}
		if last < t.cfg.ColdStart.Steps {
			t.deps.Log.Info("cold start ended early: the demonstrations are learnt", "step", last, "of", t.cfg.ColdStart.Steps, "loss", learnt)
			tell(last, last, learnt)
		}
	}
	w, o, err := snapshot(ctx, t.deps.Engine)
	if err != nil {
		return nil, err
	}
	if p, ok := t.deps.Publisher.(*wholePublisher); ok {
		if err := p.fits(w); err != nil {
			return nil, fmt.Errorf("publish version 0: %w", err)
		}
	}
	random, err := rand.NewPCG(t.cfg.Seed, 0).MarshalBinary()
	if err != nil {
		return nil, err
	}
	return &checkpoint.Checkpoint{
		State: checkpoint.State{
			Run: t.deps.Stream.Run(), Random: random, SavedAt: t.deps.Now().UTC(),
			Eta: t.cfg.Eta, Depth: t.cfg.Depth, ConfiguredEta: t.cfg.Eta, ConfiguredDepth: t.cfg.Depth, Settings: t.deps.Settings,
		},
		Weights: w, Optimizer: o,
	}, nil
}

// resume takes up a checkpoint's state, and with it the run.
func (t *trainer) resume(ctx context.Context, fence context.CancelCauseFunc, c *checkpoint.Checkpoint) error {
	s := &c.State
	if s.Run != t.deps.Stream.Run() {
		return fmt.Errorf("checkpoint %s is of run %q, this is run %q: name another checkpoint folder or the same run", t.store.Path(s.Step), s.Run, t.deps.Stream.Run())
	}
	if t.spoilt.anew {
		// A step was broken off: the engine may have gathered a part of its gradient. All else that this changes is loaded now.
		if _, err := t.deps.Engine.Step(ctx, t.cfg.Optimizer.options(0, t.cfg.Steps)); err != nil {
			return fmt.Errorf("drop the gradient of a step that was broken off: %w", err)
		}
	}
	if err := t.deps.Engine.SetWeights(ctx, c.Weights); err != nil {
		return fmt.Errorf("load weights of step %d: %w", s.Step, err)
	}
	if err := t.deps.Engine.SetOptimizer(ctx, c.Optimizer); err != nil {
		return fmt.Errorf("load optimizer of step %d: %w", s.Step, err)
	}
	c.Optimizer, c.Critic = nil, nil // the engines have them
	t.random = rand.NewPCG(t.cfg.Seed, 0)
	if err := t.random.UnmarshalBinary(s.Random); err != nil {
		return fmt.Errorf("load random state of step %d: %w", s.Step, err)
	}
	t.step, t.totals = s.Step, s.Totals
	t.compareSettings(s)
	t.restoreKLCoef(s)
	if err := t.restoreLearnt(s.Advantage); err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", s.Step, err)
	}
	if t.deps.Reported != nil && s.Metrics != nil && s.Step > t.deps.Reported() {
		t.untold = &untold{metrics: s.Metrics, at: s.SavedAt}
	}
	t.version, t.recorded = Version{Version: s.Step, Weights: c.Weights, At: s.SavedAt}, c.Record
	hold := func() error { return t.deps.Stream.Take(ctx, position(s)) }
	if t.spoilt.anew { // taking it once more would forget what was purged
		hold = func() error { return t.deps.Stream.Check(ctx) }
	}
	if err := hold(); err != nil {
		return err
	}
	t.guard = watch(ctx, t.deps.Stream, fence, t.deps.Log)
	if err := t.chooseBounds(ctx, s); err != nil {
		return err
	}
	if err := t.openFeed(ctx, c); err != nil {
		return err
	}
	t.delivered, t.flatBefore = s.Ledger.Low, s.FlatGroups
	t.assembler = batch.New(batch.Config{
		Run: s.Run, Groups: t.cfg.BatchGroups, MinGroup: t.cfg.MinGroup, Baseline: t.cfg.baseline(), Eta: t.eta,
		InOrder: t.cfg.Deterministic, Choose: t.cfg.choose, Keep: t.cfg.keep, Shape: t.cfg.shape, MaxFlat: t.cfg.MaxDroppedGroups, Hold: t.cfg.hold(s.Step),
		Rows: t.cfg.Selection.Accumulate.Rows, Horizon: t.cfg.horizon(t.eta), MaxEarly: t.cfg.maxPending(t.eta),
		Check:  batch.Checker(t.deps.Engine.Config().VocabSize, t.deps.Engine.Config().MaxPositions),
		Spoilt: t.spoilt.reasons, Opening: t.deps.Opening, Bounds: batch.Bounds{Reward: t.cfg.Limits.MaxReward, Segments: t.cfg.Limits.MaxSegments},
	}, batch.Start{Version: s.Step, NextCursor: s.Issue.NextCursor, Flat: s.FlatGroups, Ledger: s.Ledger})
	t.dropUnknownTasks(s)
	t.issuer = restoreIssuer(t.cfg, s.Run, t.deps.Prompts, s, t.assembler)
	t.issuer.admission.SetLimits(t.cfg.limits(t.eta, t.depth))
	t.issuer.dropped, t.lost = t.lost, nil
	t.issuer.reissue(c)
	t.follower = follow(ctx, t.deps.Stream, t.deps.Log)
	for _, d := range c.Pending {
		t.carried[d.Sequence] = d
		e := t.assembler.Add(d)
		t.issuer.apply(e)
		if err := t.dispose(ctx, e.Verdicts); err != nil {
			return err
		}
	}
	return t.plan(ctx)
}

// restoreKLCoef goes on with the coefficient as it has adapted. One that does not adapt, or that the configuration has
// changed since, is the configuration's.
func (t *trainer) restoreKLCoef(s *checkpoint.State) {
	kl := t.cfg.Loss.KL
	if kl.Target <= 0 || kl.Coef == 0 || s.KLCoef == nil || *s.KLCoef == 0 {
		return
	}
	if s.ConfiguredKLCoef == nil || *s.ConfiguredKLCoef == kl.Coef {
		t.objective.SetKLCoef(*s.KLCoef)
	}
}

// openReference makes the frozen policy. Its weights are those of version 0, which the store keeps.
func (t *trainer) openReference(ctx context.Context, c *checkpoint.Checkpoint) error {
	if !t.objective.NeedsReference() {
		return nil
	}
	reference, err := t.deps.NewEngine(t.deps.Engine.Config())
	if err != nil {
		return fmt.Errorf("make the reference policy: %w", err)
	}
	t.reference = reference
	w, err := t.store.Reference(t.deps.Engine.Config(), c)
	if err != nil {
		return err
	}
	if err := t.reference.SetWeights(ctx, w); err != nil {
		return fmt.Errorf("load the reference policy: %w", err)
	}
	return nil
}

// position is where a checkpoint stands in the stream, nil where it never read one.
func position(s *checkpoint.State) *Position {
	if s.Stream == "" {
		return nil
	}
	p := &Position{Stream: s.Stream, Created: s.Created, Sequence: s.Ledger.Low, Known: s.Known, Stored: s.Stored}
	if p.Known == 0 {
		for _, sequences := range [][]uint64{s.Ledger.Above, s.Ledger.Carried, {s.Ledger.Low}} {
			p.Known = max(p.Known, slices.Max(append(sequences, 0)))
		}
	}
	return p
}

// openFeed opens the feed at the ledger's mark. On a recreated stream the old marks mean nothing: what was delivered
// for open groups is lost, so their prompts are issued again, and what was trained on stays known by its groups
// having ended.
func (t *trainer) openFeed(ctx context.Context, c *checkpoint.Checkpoint) error {
	s := &c.State
	pending := t.cfg.maxPending(t.eta)
	feed, err := t.deps.Stream.Feed(ctx, position(s), pending)
	lost := errors.Is(err, ErrRecreated)
	t.losses = s.Losses
	if lost {
		t.deps.Log.Warn("the trajectory stream is a new one, or has lost messages: open groups are rolled out again", "groups", len(s.Issue.Open), "err", err)
		s.Ledger, c.Pending = batch.Ledger{}, nil
		for _, g := range s.Issue.Open {
			t.lost = append(t.lost, checkpoint.RecordDrop{Group: g.Group().ID(), Cursor: g.Ticket.Cursor, Reason: ReasonLost, Reissue: true})
			s.Issue.Again = append(s.Issue.Again, checkpoint.Again{Cursor: g.Ticket.Cursor, Attempt: g.Ticket.Attempt})
		}
		s.Issue.Open, s.Issue.Refused, s.Admission.Running = nil, nil, 0
		clear(t.spoilt.reasons) // their sequences are other trajectories'
		// What was purged, too, was so of sequences that are used again.
		if err := t.store.ForgetPurged(); err != nil {
			return err
		}
		if err := t.deps.Stream.Take(ctx, nil); err != nil {
			return err
		}
		feed, err = t.deps.Stream.Feed(ctx, nil, pending)
	}
	if err != nil {
		return fmt.Errorf("open the trajectory feed: %w", err)
	}
	t.feed = feed
	if identity := feed.Identity(); lost && identity.Stream == s.Stream && identity.Created.Equal(s.Created) {
		t.losses++
	}
	return nil
}

// dropUnknownTasks ends the open groups of tasks that the run no longer has: no producer could roll them out. Their cursors
// are issued again, for prompts of the tasks that the run has now.
func (t *trainer) dropUnknownTasks(s *checkpoint.State) {
	tasks := t.deps.Prompts.Tasks()
	s.Issue.Open = slices.DeleteFunc(slices.Clone(s.Issue.Open), func(g checkpoint.OpenGroup) bool {
		if slices.Contains(tasks, g.Ticket.Task) {
			return false
		}
		t.deps.Log.Warn("an open group's task is not among the run's: the group is dropped", "group", g.Group().ID(), "task", g.Ticket.Task, "tasks", tasks)
		t.lost = append(t.lost, checkpoint.RecordDrop{Group: g.Group().ID(), Cursor: g.Ticket.Cursor, Reason: ReasonUnknownTask, Reissue: true})
		s.Issue.Again = append(s.Issue.Again, checkpoint.Again{Cursor: g.Ticket.Cursor, Attempt: g.Ticket.Attempt})
		s.Admission.Running--
		return true
	})
}

// close ends what start began.
func (t *trainer) close() error {
	var errs []error
	if t.guard != nil {
		t.guard.stop()
	}
	if t.follower != nil {
		t.follower.stop()
	}
	if t.reference != nil {
		errs = append(errs, t.reference.Close())
	}
	if t.critic != nil && t.cfg.Critic.Network == CriticOwn {
		errs = append(errs, t.critic.Close())
	}
	if t.feed != nil {
		errs = append(errs, t.feed.Close())
	}
	if t.store != nil {
		errs = append(errs, t.store.Close())
	}
	return errors.Join(errs...)
}

// snapshot copies the weights and the moments out.
func snapshot(ctx context.Context, e gpu.Engine) (*gpu.Weights, *gpu.OptimizerState, error) {
	w, err := e.Weights(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read weights: %w", err)
	}
	o, err := e.Optimizer(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read optimizer: %w", err)
	}
	return w, o, nil
}
