package trainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// nextBatch reads the feed until the assembler has a batch. The deliveries decide, one by one and in order, so
// that reading the same stream again gives the same batches.
func (t *trainer) nextBatch(ctx context.Context) (*batch.Batch, error) {
	began := t.deps.Now()
	defer func() { t.now.wait = t.deps.Now().Sub(began) }()
	wait := t.follower.context()
	for {
		b, err := t.assembler.Take()
		if err != nil || b != nil {
			t.flatBefore = 0
			return b, err
		}
		if err := t.gather(ctx); err != nil {
			return nil, err
		}
		if t.unissued == 0 {
			if err := t.issue(wait); err != nil {
				return nil, drained(wait, err)
			}
		}
		t.unissued = max(0, t.unissued-1)
		d, err := t.feed.Next(wait)
		if errors.Is(err, ErrIdle) && wait.Err() == nil {
			t.unissued = 0
			if err := t.relieve(ctx); err != nil {
				return nil, err
			}
			if err := t.giveUp(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, drained(wait, fmt.Errorf("next delivery: %w", err))
		}
		t.deps.Metrics.delivered()
		t.quiet, t.told = t.deps.Now(), 0
		t.deliveries[d.Sequence] = d
		// Sequences passed over are messages that the feed refused: they fill the stream too.
		t.ended += int(max(d.Sequence, t.delivered+1) - (t.delivered + 1))
		t.delivered = max(t.delivered, d.Sequence)
		e := t.assembler.Add(d.Delivery)
		t.issuer.apply(e)
		if err := t.dispose(ctx, e.Verdicts); err != nil {
			return nil, err
		}
		if err := t.plan(ctx); err != nil {
			return nil, err
		}
		if err := t.lookAtDrops(); err != nil {
			return nil, err
		}
		if t.ended >= t.cfg.Checkpoint.Messages {
			if err := t.renew(ctx); err != nil {
				return nil, err
			}
		}
	}
}

// gather begins another round of prompts when a step counts rows and all that was issued does not have enough.
func (t *trainer) gather(ctx context.Context) error {
	rule := t.cfg.Selection.Accumulate
	if rule.Rows == 0 {
		return nil
	}
	rows, groups, all := t.assembler.Gathered()
	if !all {
		return nil
	}
	if enough, err := rule.Enough(rows, (groups+t.cfg.BatchGroups-1)/t.cfg.BatchGroups); enough || err != nil {
		if err != nil {
			err = fmt.Errorf("trainer.selection.accumulate: %w: lower rows or raise max_rounds", err)
		}
		return err
	}
	t.issuer.round()
	return t.plan(ctx)
}

// crowded is how full the stream, or what may be pending of it, may be while the trainer waits for it.
const crowded = 0.5

// relieve makes room when nothing comes, for it may be that nothing can: what fills the stream may be larger than
// Messages reckons with, or nothing but messages that the feed itself refused; and the feed gives no more where too many
// messages wait for their groups.
func (t *trainer) relieve(ctx context.Context) error {
	passed := t.feed.Passed()
	if passed <= t.purged {
		return nil
	}
	full, err := t.feed.Fullness(ctx)
	if err != nil {
		return fmt.Errorf("look whether the stream is full: %w", err)
	}
	if full < crowded {
		return nil
	}
	t.assembler.Pass(passed)
	t.delivered = max(t.delivered, passed)
	return t.renew(ctx)
}

// renew writes the last checkpoint anew, with the messages that wait for their groups in it, so that the stream can be
// purged of everything delivered so far. Otherwise a step that drops more than the stream holds would wait for
// ever: producers for room, the trainer for a batch.
func (t *trainer) renew(ctx context.Context) error {
	if err := t.deps.Stream.Check(ctx); err != nil {
		return err
	}
	fresh := t.assembler.Carry()
	c, err := t.checkpoint(ctx, t.version.At)
	if err != nil {
		return err
	}
	c.Record = t.record(nil, &c.State)
	c.Record.Continue(t.recorded)
	c.Record.Groups, c.Record.Batch, c.Record.Changed = t.recorded.Groups, t.recorded.Batch, t.recorded.Changed
	c.Record.Rejected = append(slices.Clone(t.recorded.Rejected), c.Record.Rejected...)
	c.Record.Dropped = append(slices.Clone(t.recorded.Dropped), c.Record.Dropped...)
	if err := t.store.Renew(c); err != nil {
		return err
	}
	t.deps.After("renew")
	t.saved(c)
	for _, d := range fresh {
		t.carried[d.Sequence] = d
		if _, inFlight := t.deliveries[d.Sequence]; inFlight {
			delete(t.deliveries, d.Sequence)
			t.settled = append(t.settled, d.Sequence)
		}
	}
	if err := t.ack(ctx); err != nil {
		return err
	}
	return t.purge(ctx)
}

// rows lays the batch out, action masks honoured unless the configuration says otherwise.
func (t *trainer) rows(b *batch.Batch) *batch.Rows {
	rows := batch.NewRows(b)
	t.toolTokens = nil
	if !t.cfg.MaskTools {
		t.toolTokens = rows.Unmask()
	}
	return rows
}

// plan opens the groups that admission allows; issue sends their tickets.
func (t *trainer) plan(ctx context.Context) error {
	return t.dispose(ctx, t.issuer.plan(t.step, t.deps.Now()).Verdicts)
}

// dispose acks what has ended and files what was refused. It may happen before the checkpoint that says so: a
// trainer that starts again from the checkpoint before reads the messages again and comes to the same verdicts.
// What was trained on is different: its ack waits in settled.
func (t *trainer) dispose(ctx context.Context, verdicts []batch.Verdict) error {
	var acks []uint64
	for _, v := range verdicts {
		d, inFlight := t.deliveries[v.Sequence]
		delete(t.deliveries, v.Sequence)
		if carried, ok := t.carried[v.Sequence]; ok {
			// A checkpoint holds it, and the stream knows it no more: without an origin it is only filed.
			d = &Delivery{Delivery: carried}
			delete(t.carried, v.Sequence)
		}
		if v.State != batch.Trained {
			t.ended++
		}
		if v.State == batch.Rejected {
			t.now.refusals[string(v.Reason)]++
		}
		if v.Reason == batch.ReasonZeroVariance && d != nil {
			t.now.drought.note(d.Trajectory)
		}
		switch {
		case d != nil && v.State == batch.Rejected && v.Reason.Refusal():
			t.deps.Log.Debug("trajectory refused", "trajectory", v.ID, "reason", v.Reason, "detail", v.Detail)
			if err := t.feed.Reject(ctx, d, v.Reason, v.Detail); err != nil {
				return fmt.Errorf("reject %s: %w", v.ID, err)
			}
		case !inFlight: // acked when the checkpoint took it up
		case v.State == batch.Trained:
			t.settled = append(t.settled, v.Sequence)
		default:
			acks = append(acks, v.Sequence)
		}
	}
	if len(acks) == 0 {
		return nil
	}
	if err := t.feed.Ack(ctx, acks...); err != nil {
		return fmt.Errorf("ack what was not trained on: %w", err)
	}
	return nil
}

// commit makes the trained batch part of the past and decides what follows from the new version.
func (t *trainer) commit(ctx context.Context, b *batch.Batch) error {
	e := t.assembler.Commit()
	for _, g := range b.Groups {
		delete(t.issuer.open, g.ID())
	}
	// A short batch uses up the version's whole share, or the next would be issued work that goes stale.
	t.issuer.consume(len(b.Groups))
	t.step++
	t.settings = t.deps.Settings
	eta := t.eta
	if err := t.adoptBounds(ctx); err != nil {
		return err
	}
	t.issuer.admission.SetLimits(t.cfg.limits(t.eta, t.depth))
	t.issuer.admission.SetVersion(t.step)
	if t.eta != eta {
		if err := t.feed.SetMaxPending(ctx, t.cfg.maxPending(t.eta)); err != nil {
			return fmt.Errorf("bound what is pending: %w", err)
		}
		t.assembler.SetEarly(t.cfg.horizon(t.eta), t.cfg.maxPending(t.eta))
	}
	// What is refused here is filed before the checkpoint. Under the lower bound a process that does the step again, after
	// an operator has raised eta, refuses the same.
	t.assembler.SetEta(min(eta, t.eta))
	t.assembler.SetHold(t.cfg.hold(t.step))
	advanced := t.assembler.Advance(t.step)
	t.assembler.SetEta(t.eta)
	t.issuer.apply(advanced)
	if err := t.dispose(ctx, append(e.Verdicts, advanced.Verdicts...)); err != nil {
		return err
	}
	return t.plan(ctx)
}

// save writes the checkpoint of the step; b is nil at version 0.
func (t *trainer) save(ctx context.Context, b *batch.Batch) error {
	began := t.deps.Now()
	t.measure(b)
	for reason, n := range t.feed.Refused() {
		t.now.refusals[string(reason)] += int64(n)
	}
	if err := t.deps.Stream.Check(ctx); err != nil {
		return err
	}
	c, err := t.checkpoint(ctx, began.UTC())
	if err != nil {
		return err
	}
	c.Record = t.record(b, &c.State)
	c.Batch = b.Deliveries()
	if b != nil {
		c.State.Metrics = t.values(began)
		// The checkpoint holds them as JSON, which has no such numbers.
		maps.DeleteFunc(c.State.Metrics, func(_ string, x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	}
	if err := t.store.Save(c); err != nil {
		return err
	}
	t.saved(c)
	t.changed = nil
	t.version = Version{Version: t.step, Weights: c.Weights, At: c.State.SavedAt}
	t.now.save = t.deps.Now().Sub(began)
	return nil
}

func (t *trainer) saved(c *checkpoint.Checkpoint) {
	t.issuer.rejected, t.issuer.dropped = nil, nil
	t.ended, t.recorded = 0, c.Record
}

// checkpoint is everything as it stands, but for the record.
func (t *trainer) checkpoint(ctx context.Context, at time.Time) (*checkpoint.Checkpoint, error) {
	w, o, err := snapshot(ctx, t.deps.Engine)
	if err != nil {
		return nil, err
	}
	critic, err := t.savedCritic(ctx)
	if err != nil {
		return nil, err
	}
	random, err := t.random.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("save random state: %w", err)
	}
	identity := t.feed.Identity()
	learnt, err := t.learnt()
	if err != nil {
		return nil, err
	}
	klCoef, configuredKL := t.objective.KLCoef(), t.cfg.Loss.KL.Coef
	s := checkpoint.State{
		Run: t.deps.Stream.Run(), Step: t.step, Random: random,
		Eta: t.eta, Depth: t.depth, ConfiguredEta: t.cfg.Eta, ConfiguredDepth: t.cfg.Depth,
		Stream: identity.Stream, Created: identity.Created, Ledger: t.assembler.Ledger(),
		Known: identity.Known, Stored: identity.Stored, Losses: t.losses, FlatGroups: t.assembler.Flat(),
		KLCoef: &klCoef, ConfiguredKLCoef: &configuredKL, Advantage: learnt, Totals: t.totals, SavedAt: at, Settings: t.settings,
	}
	s.Issue, s.Admission = t.issuer.state(t.step)
	return &checkpoint.Checkpoint{
		State: s, Config: t.deps.Engine.Config(), Weights: w, Optimizer: o, Critic: critic, Tokenizer: t.deps.Tokenizer,
		Pending: t.assembler.Carried(),
	}, nil
}

// record is what the step leaves for an audit.
func (t *trainer) record(b *batch.Batch, s *checkpoint.State) checkpoint.Record {
	r := checkpoint.Record{
		Step: s.Step, Stream: s.Stream, Created: s.Created, Losses: s.Losses,
		Rejected: t.issuer.rejected, Dropped: t.issuer.dropped,
		NextCursor: s.Issue.NextCursor, Again: s.Issue.Again, Settings: settingsHash(t.settings),
	}
	for _, g := range s.Issue.Open {
		r.Open = append(r.Open, g.Group().ID())
	}
	if b == nil {
		return r
	}
	r.Changed = t.changed
	for _, g := range b.Groups {
		group := checkpoint.RecordGroup{Group: g.ID()}
		for _, m := range g.Members {
			group.Members = append(group.Members, recordMember(m))
		}
		if g.Baseline != nil {
			baseline := recordMember(*g.Baseline)
			group.Baseline = &baseline
		}
		r.Groups = append(r.Groups, group)
	}
	return r
}

func recordMember(m batch.Member) checkpoint.RecordMember {
	return checkpoint.RecordMember{
		ID: m.Trajectory.ID, Sequence: m.Sequence, Oldest: m.Oldest, Newest: m.Newest, Reward: m.Return,
		PassedOver: m.PassedOver,
	}
}

// ack releases the messages of the batch that the checkpoint holds.
func (t *trainer) ack(ctx context.Context) error {
	if len(t.settled) == 0 {
		return nil
	}
	if err := t.feed.Ack(ctx, t.settled...); err != nil {
		return fmt.Errorf("ack the batch: %w", err)
	}
	t.settled = nil
	return nil
}

// purge frees the stream of what no checkpoint needs that the run can go back to.
func (t *trainer) purge(ctx context.Context) error {
	identity := t.feed.Identity()
	upTo := t.store.SafePurge(identity.Stream, identity.Created, t.losses)
	if upTo <= t.purged {
		return nil
	}
	if err := t.store.MarkPurged(identity.Stream, identity.Created, upTo); err != nil {
		return err
	}
	if err := t.feed.Purge(ctx, upTo); err != nil {
		return fmt.Errorf("purge the stream up to %d: %w", upTo, err)
	}
	t.purged = upTo
	return nil
}

// publish makes the version visible, then tells the run what is too old now.
func (t *trainer) publish(ctx context.Context) error {
	began := t.deps.Now()
	if err := t.deps.Publisher.Publish(ctx, t.version); err != nil {
		if errors.Is(err, ErrFenced) && t.deps.Stream.Check(ctx) == nil {
			// Nobody else has the run: what is published is of a step that this run did before it went back.
			err = t.abandoned()
		}
		return fmt.Errorf("publish version %d: %w", t.version.Version, err)
	}
	t.version.Weights = nil // a whole copy of the model, which nothing reads again
	if t.deps.Metrics != nil {
		t.deps.Metrics.version.Set(float64(t.step))
	}
	t.deps.After("publish")
	if err := t.putControl(ctx); err != nil {
		return err
	}
	t.now.publish = t.deps.Now().Sub(began)
	t.deps.Observer(schemas.Event{
		Run: t.deps.Stream.Run(), Type: schemas.EventVersionPublished, At: t.deps.Now().UTC(), Role: "trainer",
		Step: t.step, PolicyVersion: t.step,
	})
	return nil
}

// ErrAbandoned is returned, wrapped, by a trainer that went back to an older checkpoint and trained a step otherwise than
// the version of it that is published.
var ErrAbandoned = errors.New("it is published with other weights")

// abandoned says what to do then. A version is not replaced: engines sample from it, and trajectories that wait in the
// stream name it.
func (t *trainer) abandoned() error {
	return fmt.Errorf("%w: the run went back to an older checkpoint, and the step came out otherwise than before. "+
		"A published version is never replaced: go on from here as a new run, with --run.name and --model.folder %s --trainer.cold_start.steps 0; "+
		"or remove that folder and put back the checkpoints that were newer", ErrAbandoned, t.store.Path(t.step))
}

// How tickets are sent.
const (
	// issueTogether is how many are sent at once.
	issueTogether = 64
	// issuePatience is how long they may take: then the ticket stream is full, or the broker away, and the rest waits.
	issuePatience = time.Second
	// issueAfter is how many messages are read before the rest is sent. They are there when nothing comes, too.
	issueAfter = 64
)

// issue sends the tickets that are planned, as many as the ticket stream takes. The others stay planned: a trainer that
// waited for room would read nothing, so that trajectories fill their stream, no producer is rid of one, and no ticket is
// done.
func (t *trainer) issue(ctx context.Context) error {
	for len(t.issuer.pending) > 0 {
		some := t.issuer.pending[:min(issueTogether, len(t.issuer.pending))]
		patient, cancel := context.WithTimeout(ctx, issuePatience)
		err := t.deps.Stream.Issue(patient, some...)
		late := patient.Err() != nil
		cancel()
		switch {
		case err == nil:
			t.issuer.pending = t.issuer.pending[len(some):]
		case late && ctx.Err() == nil && !errors.Is(err, ErrFenced):
			t.deps.Log.Debug("tickets wait for room", "tickets", len(t.issuer.pending), "err", err)
			t.unissued = issueAfter
			return nil
		default:
			return fmt.Errorf("issue %d tickets: %w", len(t.issuer.pending), err)
		}
	}
	return nil
}

// drained is err, or that the run is draining where that is why ctx ended.
func drained(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errDrained) {
		return errDrained
	}
	return err
}

// done says that the run has come to its end.
func (t *trainer) done(context.Context) error {
	t.deps.Log.Info("training ended", "step", t.step, "checkpoint", t.store.Path(t.step))
	t.deps.Observer(schemas.Event{
		Run: t.deps.Stream.Run(), Type: schemas.EventRunDone, At: t.deps.Now().UTC(), Role: "trainer",
		Step: t.step, PolicyVersion: t.step, Message: t.store.Path(t.step),
	})
	return nil
}
