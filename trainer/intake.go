package trainer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
)

// intake turns the trajectory stream into batches. It owns the feed, the assembler, the issuer of tickets, and the account
// of every message from its delivery to its end.
type intake struct {
	cfg   Config
	deps  Deps
	store *checkpoint.Store
	// saveAnew writes the newest checkpoint anew, with the messages in it that wait for their groups.
	saveAnew func(context.Context) error

	feed      Feed
	assembler *batch.Assembler
	issuer    *issuer
	account   account
	archive   *archive.Writer
	quiet     quiet
	drought   drought
	// refusals counts by reason what was not trained on, until TakeRefusals.
	refusals map[schemas.Reason]int64
	// losses counts how often the stream had lost messages, purged is the sequence up to which it was purged.
	losses int64
	purged uint64
}

func newIntake(cfg Config, deps Deps, store *checkpoint.Store, saveAnew func(context.Context) error) (*intake, error) {
	kept, err := archive.Open(filepath.Join(store.Dir(), archive.Folder), cfg.Archive, deps.Log)
	if err != nil {
		return nil, err
	}
	return &intake{
		cfg: cfg, deps: deps, store: store, saveAnew: saveAnew, account: newAccount(), archive: kept, refusals: map[schemas.Reason]int64{},
	}, nil
}

// Used reports and archives the trajectories of the batch that a step trained on, with the step's numbers of each token. batched is when the
// batch was complete.
func (i *intake) Used(b *batch.Batch, tokens *learner.Tokens, batched time.Time, step int64) {
	i.deps.reportTrained(b, i.account.timesOf, batched, step)
	i.archive.Step(step, b, tokens, i.account.timesOf, i.deps.Now())
}

// SetLimits bounds the rollouts of the tickets that are issued from now on, as operators have chosen.
func (i *intake) SetLimits(l limits) { i.issuer.limits = l }

// Refused is what was refused and dropped since the last record.
func (i *intake) Refused() (rejected []checkpoint.RecordRejection, dropped []checkpoint.RecordDrop) {
	return i.issuer.rejected, i.issuer.dropped
}

// Unfillable are the open groups that can no longer be trained on: their rollouts are cancelled.
func (i *intake) Unfillable() []string { return i.assembler.Unfillable() }

// OpenGroups counts the groups that were issued and have not ended.
func (i *intake) OpenGroups() int { return len(i.issuer.open) }

// Next reads the feed until the assembler has a batch. The deliveries decide, one by one and in order, so that reading the
// same stream again gives the same batches. wait ends the wait for a message; ctx ends everything else.
func (i *intake) Next(ctx, wait context.Context) (*batch.Batch, error) {
	for {
		b, err := i.assembler.Take()
		if err != nil || b != nil {
			i.drought.before = 0
			return b, err
		}
		if err := i.gather(ctx); err != nil {
			return nil, err
		}
		if err := i.issueDue(wait); err != nil {
			return nil, err
		}
		d, err := i.feed.Next(wait)
		i.countRefused()
		switch {
		case errors.Is(err, streams.ErrIdle) && wait.Err() == nil:
			err = i.idle(ctx)
		case err != nil:
			return nil, fmt.Errorf("next delivery: %w", err)
		default:
			err = i.take(ctx, d)
		}
		if err != nil {
			return nil, err
		}
	}
}

// take takes one delivery.
func (i *intake) take(ctx context.Context, d *streams.Delivery) error {
	i.deps.Metrics.delivered()
	now := i.deps.Now()
	i.quiet.end(now)
	i.account.deliver(d)
	if t := d.Trajectory; t != nil {
		times := archive.Times{Came: now}
		if g, open := i.issuer.open[t.Group]; open {
			times.Issued = g.Ticket.IssuedAt
		}
		i.account.times[d.Sequence] = times
	}
	effects := i.assembler.Add(d.Delivery)
	if d.Trajectory != nil && isTakenUp(d.Sequence, effects) {
		i.deps.Metrics.takenUp()
	}
	if err := i.apply(ctx, effects); err != nil {
		return err
	}
	if err := i.plan(ctx); err != nil {
		return err
	}
	if err := i.lookAtDrops(); err != nil {
		return err
	}
	if i.account.ended >= i.cfg.Checkpoint.Messages {
		return i.renew(ctx)
	}
	return nil
}

// isTakenUp is whether a group has use for the message at a sequence: it is not refused as it comes, nor one that has ended before.
func isTakenUp(sequence uint64, e batch.Effects) bool {
	return !slices.ContainsFunc(e.Verdicts, func(v batch.Verdict) bool {
		return v.Sequence == sequence && (v.State == batch.Settled || v.State == batch.Rejected && v.Reason.Refusal())
	})
}

// idle is what is done when nothing comes for a while.
func (i *intake) idle(ctx context.Context) error {
	i.issuer.postponed = 0
	if err := i.relieve(ctx); err != nil {
		return err
	}
	return i.giveUp(ctx)
}

// gather begins another round of prompts when a step counts rows and all that was issued does not have enough.
func (i *intake) gather(ctx context.Context) error {
	rule := i.cfg.Selection.Accumulate
	if rule.Rows == 0 {
		return nil
	}
	rows, groups, all := i.assembler.Gathered()
	if !all {
		return nil
	}
	enough, err := rule.Enough(rows, (groups+i.cfg.BatchGroups-1)/i.cfg.BatchGroups)
	if err != nil {
		return fmt.Errorf("trainer.selection.accumulate: %w: lower rows or raise max_rounds", err)
	}
	if enough {
		return nil
	}
	i.issuer.round()
	return i.plan(ctx)
}

// plan opens the groups that admission allows, and has the groups branch whose trunks are there; Issue sends their tickets.
func (i *intake) plan(ctx context.Context) error {
	opened := i.issuer.plan(i.assembler.Version(), i.deps.Now())
	i.issuer.branch()
	return i.dispose(ctx, opened.Verdicts)
}

// apply follows what the assembler decided.
func (i *intake) apply(ctx context.Context, e batch.Effects) error {
	i.issuer.apply(e)
	return i.dispose(ctx, e.Verdicts)
}

// dispose acks messages that have ended and files refused ones. It may happen before the checkpoint that says so: a
// trainer that starts again from the checkpoint before reads the messages again and comes to the same verdicts.
// Messages that were trained on are different: their acks wait for Ack, after the checkpoint.
func (i *intake) dispose(ctx context.Context, verdicts []batch.Verdict) error {
	var acks []uint64
	for _, v := range verdicts {
		times := i.account.times[v.Sequence]
		m, known := i.account.end(v)
		if v.State == batch.Rejected {
			i.refuse(v.Reason, 1)
			if known {
				i.deps.reportRejected(m.Trajectory, times, i.assembler.Version()+1, v.Reason)
				i.archive.End(m.Trajectory, v.Sequence, times, v.Reason, v.Detail, i.assembler.Version()+1, i.deps.Now())
			}
		}
		if v.Reason == schemas.ReasonZeroVariance && known {
			i.drought.note(m.Trajectory)
		}
		switch {
		case known && v.State == batch.Rejected && v.Reason.Refusal():
			if err := i.reject(ctx, m, v); err != nil {
				return fmt.Errorf("reject %s: %w", v.ID, err)
			}
		case m.inFlight == nil: // acked when the checkpoint took it up
		case v.State == batch.Trained:
			i.account.settle(v.Sequence)
		default:
			acks = append(acks, v.Sequence)
		}
	}
	if len(acks) == 0 {
		return nil
	}
	if err := i.feed.Ack(ctx, acks...); err != nil {
		return fmt.Errorf("ack what was not trained on: %w", err)
	}
	return nil
}

// reject files a message with the rejected ones.
func (i *intake) reject(ctx context.Context, m message, v batch.Verdict) error {
	i.deps.Log.Debug("trajectory refused", "trajectory", v.ID, "reason", v.Reason, "detail", v.Detail)
	if m.inFlight == nil {
		return i.feed.RejectCarried(ctx, m.Sequence, m.Trajectory, v.Reason, v.Detail)
	}
	return i.feed.RejectSoon(ctx, m.inFlight, v.Reason, v.Detail)
}

// File files what was refused: before a checkpoint that counts it among what has ended.
func (i *intake) File(ctx context.Context) error {
	i.countRefused()
	if err := i.feed.File(ctx); err != nil {
		return fmt.Errorf("file what was refused: %w", err)
	}
	return nil
}

// refuse counts messages that are not trained on.
func (i *intake) refuse(reason schemas.Reason, n int) {
	i.refusals[reason] += int64(n)
	i.deps.Metrics.refused(reason, n)
}

// countRefused counts what the feed itself has refused.
func (i *intake) countRefused() {
	for reason, n := range i.feed.Refused() {
		i.refuse(reason, n)
	}
	for producer, n := range i.feed.RefusedBy() {
		i.deps.Metrics.refusedBy(producer, n)
	}
}

// Commit ends the batch in hand, which has been trained on, and goes on to the version that came of it: groups in hand may
// be too stale for it. before and now are the bounds that the step was begun with and that hold from here on.
func (i *intake) Commit(ctx context.Context, b *batch.Batch, version int64, before, now inForce) error {
	committed := i.assembler.Commit()
	for _, g := range b.Groups {
		delete(i.issuer.open, g.ID())
	}
	// A short batch uses up the version's whole share, or the next would be issued work that goes stale.
	i.issuer.consume(len(b.Groups))
	i.issuer.admission.SetLimits(i.cfg.limits(now.eta, now.depth))
	i.issuer.admission.SetVersion(version)
	if now.eta != before.eta {
		if err := i.feed.SetMaxPending(ctx, i.cfg.maxPending(now.eta)); err != nil {
			return fmt.Errorf("bound what is pending: %w", err)
		}
		i.assembler.SetEarly(i.cfg.horizon(now.eta), i.cfg.maxPending(now.eta))
	}
	// What is refused here is filed before the checkpoint. Under the lower bound a process that does the step again, after
	// an operator has raised eta, refuses the same.
	i.assembler.SetEta(min(before.eta, now.eta))
	i.assembler.SetHold(i.cfg.hold(version))
	advanced := i.assembler.Advance(version)
	i.assembler.SetEta(now.eta)
	i.issuer.apply(advanced)
	if err := i.dispose(ctx, append(committed.Verdicts, advanced.Verdicts...)); err != nil {
		return err
	}
	return i.plan(ctx)
}

// TakeRefusals counts by reason what was not trained on since it was asked last, with what the feed itself refused.
func (i *intake) TakeRefusals() map[schemas.Reason]int64 {
	i.countRefused()
	taken := i.refusals
	i.refusals = map[schemas.Reason]int64{}
	return taken
}

// Forget drops what is counted of one step.
func (i *intake) Forget() {
	i.refusals, i.drought.step = map[schemas.Reason]int64{}, dropped{}
}

// queue is what waits: groups issued and not ready, groups ready, and messages of groups yet to be issued.
type queue struct{ waiting, ready, early int }

// Counts are of what waits now.
func (i *intake) Counts() queue {
	waiting, ready, early := i.assembler.Counts()
	return queue{waiting, ready, early}
}

// Close closes the feed.
func (i *intake) Close() {
	if i.feed != nil {
		i.feed.Close()
	}
}

// CloseArchive waits until what was archived is on the disk.
func (i *intake) CloseArchive() error { return i.archive.Close() }
