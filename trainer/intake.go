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

// intake turns the trajectory stream into batches. It owns the feed, the assembler, the issuer of tickets, and the state of every message
// from its delivery to its end.
type intake struct {
	cfg   Config
	deps  Deps
	store *checkpoint.Store
	// saveAnew writes the newest checkpoint anew, with the messages in it that wait for their groups.
	saveAnew func(context.Context) error

	feed      Feed
	assembler *batch.Assembler
	issuer    *issuer
	account   messageLedger
	archive   *archive.Writer
	keeper    keeper // nil where no messages are kept
	idleTimer idleTimer
	drops     dropMonitor
	failures  failureMonitor
	endings   endings
	// episodeWait is the wait for episodes that would else fall out of the bound.
	episodeWait episodeWait
	// refusals counts by reason the messages that were not trained on, until TakeRefusals.
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
		endings: newEndings(deps),
	}, nil
}

// Used reports and archives the trajectories of the batch that a step trained on, with the step's numbers of each token. batched is when the
// batch was complete.
func (i *intake) Used(b *batch.Batch, tokens *learner.Tokens, batched time.Time, step int64) {
	if b.Uses() > 1 {
		// Its trajectories ended with their first use. Their sequences may be other messages' since.
		i.archive.Step(step, b, tokens, func(uint64) archive.Origin { return archive.Origin{} }, i.deps.Now())
		return
	}
	i.deps.reportTrained(b, i.account.lookUpOrigin, batched, step)
	i.archive.Step(step, b, tokens, i.account.lookUpOrigin, i.deps.Now())
	i.endings.addBatch(b)
}

// SetLimits bounds the rollouts of the tickets that are issued from now on, as operators have chosen.
func (i *intake) SetLimits(l limits) { i.issuer.limits = l }

// Refused returns the messages refused and the groups dropped since the last record.
func (i *intake) Refused() (rejected []checkpoint.RecordRejection, dropped []checkpoint.RecordDrop) {
	return i.issuer.rejected, i.issuer.dropped
}

// Unfillable are the open groups that can no longer be trained on: their rollouts are cancelled.
func (i *intake) Unfillable() []string { return i.assembler.Unfillable() }

// OpenGroups counts the groups that were issued and have not ended.
func (i *intake) OpenGroups() int { return len(i.issuer.open) }

// Next reads the feed until the assembler has a batch. Only the deliveries and their order decide, so that reading the same stream again
// gives the same batches. wait ends the wait for a message; ctx ends everything else.
func (i *intake) Next(ctx, wait context.Context) (*batch.Batch, error) {
	for {
		i.assembler.SetLast(i.issuer.isUsedUp())
		b, err := i.assembler.Take()
		if err == nil && b == nil && i.issuer.isUsedUp() && i.OpenGroups() == 0 {
			return nil, errUsedUp
		}
		if err != nil || b != nil {
			i.boundWait()
			i.drops.before = 0
			return b, err
		}
		if i.boundWait() {
			continue
		}
		if err := i.openNextRound(ctx); err != nil {
			return nil, err
		}
		if err := i.issueUnlessPostponed(wait); err != nil {
			return nil, err
		}
		d, err := i.feed.Next(wait)
		i.countFeedRefusals()
		switch {
		case errors.Is(err, streams.ErrIdle) && wait.Err() == nil:
			err = i.handleIdle(ctx)
		case err != nil:
			return nil, fmt.Errorf("next delivery: %w", err)
		default:
			err = i.acceptDelivery(ctx, d)
		}
		if err != nil {
			return nil, err
		}
	}
}

// acceptDelivery takes one delivery.
func (i *intake) acceptDelivery(ctx context.Context, d *streams.Delivery) error {
	i.deps.Metrics.countDelivery()
	now := i.deps.Now()
	i.idleTimer.restart(now)
	i.account.recordDelivery(d)
	if t := d.Trajectory; t != nil {
		if i.cfg.Staleness == stalenessPace {
			i.issuer.durations.addRollout(t)
		}
		from := archive.Origin{Came: now}
		if g, open := i.issuer.open[t.Group]; open {
			from.Issued, from.Question, from.Accepted = g.Ticket.IssuedAt, g.Ticket.Prompt.Text, g.Ticket.Prompt.Answers
		}
		i.account.origins[d.Sequence] = from
	}
	i.endings.addClosed(d.Closed, i.issuer.open, now)
	effects := i.assembler.Add(d.Delivery)
	accepted := d.Trajectory != nil && isAccepted(d.Sequence, effects)
	if accepted {
		i.deps.Metrics.countAccepted()
	}
	if err := i.reportFailures(d, effects, accepted); err != nil {
		return err
	}
	if err := i.applyEffects(ctx, effects); err != nil {
		return err
	}
	if err := i.planTickets(ctx); err != nil {
		return err
	}
	if err := i.reportDrops(); err != nil {
		return err
	}
	if i.account.ended >= i.cfg.Checkpoint.Messages {
		return i.renewCheckpoint(ctx)
	}
	return nil
}

// isAccepted reports whether a group can use the message at a sequence: it is not refused on arrival, and its verdict has not been given
// before.
func isAccepted(sequence uint64, e batch.Effects) bool {
	return !slices.ContainsFunc(e.Verdicts, func(v batch.Verdict) bool {
		return v.Sequence == sequence && (v.State == batch.Settled || v.State == batch.Rejected && v.Reason.Refusal())
	})
}

// handleIdle runs when nothing has come for a while.
func (i *intake) handleIdle(ctx context.Context) error {
	i.issuer.postponed = 0
	if err := i.relieveStream(ctx); err != nil {
		return err
	}
	return i.giveUpLost(ctx)
}

// openNextRound begins another round of prompts when a step counts rows and everything issued does not have enough.
func (i *intake) openNextRound(ctx context.Context) error {
	rule := i.cfg.Selection.Accumulate
	if rule.Rows == 0 || i.issuer.isUsedUp() {
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
	i.issuer.addRound()
	return i.planTickets(ctx)
}

// planTickets opens the groups that admission allows, and plans the forks of the groups whose trunks are there; Issue sends their tickets.
func (i *intake) planTickets(ctx context.Context) error {
	opened := i.issuer.openGroups(i.assembler.Version(), i.deps.Now())
	i.issuer.planForks()
	return i.endMessages(ctx, opened.Verdicts)
}

// applyEffects carries out the assembler's decisions.
func (i *intake) applyEffects(ctx context.Context, e batch.Effects) error {
	i.issuer.applyEffects(e)
	return i.endMessages(ctx, e.Verdicts)
}

// endMessages acks messages that have ended and files refused ones. The acks may come before the checkpoint that holds the verdicts: a
// trainer that starts again from the checkpoint before reads the messages again and comes to the same verdicts. Messages that were trained
// on are different: their acks wait for Ack, after the checkpoint.
func (i *intake) endMessages(ctx context.Context, verdicts []batch.Verdict) error {
	var acks []uint64
	for _, v := range verdicts {
		from := i.account.origins[v.Sequence]
		m, known := i.account.endMessage(v)
		if v.State == batch.Rejected {
			i.countRejected(v.Reason, 1)
			if known {
				i.endings.addUnused(m.Trajectory, v.Reason)
				i.deps.reportRejected(m.Trajectory, from, i.assembler.Version()+1, v.Reason)
				i.archive.End(m.Trajectory, v.Sequence, from, v.Reason, v.Detail, i.assembler.Version()+1, i.deps.Now())
			}
		}
		if v.Reason == schemas.ReasonZeroVariance && known {
			i.drops.addRollout(m.Trajectory)
		}
		switch {
		case known && v.State == batch.Rejected && v.Reason.Refusal():
			if err := i.fileRejected(ctx, m, v); err != nil {
				return fmt.Errorf("reject %s: %w", v.ID, err)
			}
		case m.inFlight == nil: // acked when the checkpoint took it up
		case v.State == batch.Trained:
			i.account.ackLater(v.Sequence)
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

// fileRejected files a message with the rejected ones.
func (i *intake) fileRejected(ctx context.Context, m endedMessage, v batch.Verdict) error {
	i.deps.Log.Debug("trajectory refused", "trajectory", v.ID, "reason", v.Reason, "detail", v.Detail)
	if m.inFlight == nil {
		return i.feed.RejectCarried(ctx, m.Sequence, m.Trajectory, v.Reason, v.Detail)
	}
	return i.feed.RejectSoon(ctx, m.inFlight, v.Reason, v.Detail)
}

// File files the refused messages: before a checkpoint that counts them as ended.
func (i *intake) File(ctx context.Context) error {
	i.countFeedRefusals()
	if err := i.feed.File(ctx); err != nil {
		return fmt.Errorf("file what was refused: %w", err)
	}
	return nil
}

// countRejected counts messages that are not trained on.
func (i *intake) countRejected(reason schemas.Reason, n int) {
	i.refusals[reason] += int64(n)
	i.deps.Metrics.countRejected(reason, n)
}

// countFeedRefusals counts the messages that the feed itself has refused.
func (i *intake) countFeedRefusals() {
	for reason, n := range i.feed.Refused() {
		i.countRejected(reason, n)
	}
	for producer, n := range i.feed.RefusedBy() {
		i.deps.Metrics.countProducerRefusals(producer, n)
	}
}

// Commit ends the batch in hand, which has been trained on, and goes on to the new version: groups in hand may be too stale for it. before
// are the bounds that the step was begun with, now the bounds from here on. again is how many further steps train on the batch.
func (i *intake) Commit(ctx context.Context, b *batch.Batch, version int64, before, now inForce, again int) error {
	committed, fresh := batch.Effects{}, 0
	if b.Uses() == 1 { // else it has ended
		committed, fresh = i.assembler.Commit(), len(b.Groups)
		for _, g := range b.Groups {
			delete(i.issuer.open, g.ID())
		}
	}
	// A short batch uses up the version's whole share, or the next would be issued work that goes stale.
	i.issuer.consumeShare(fresh)
	i.issuer.admission.SetAgain(again)
	i.issuer.admission.SetLimits(i.cfg.admissionLimits(now.eta, now.depth))
	i.issuer.admission.SetVersion(version)
	if now.eta != before.eta {
		if err := i.feed.SetMaxPending(ctx, i.cfg.maxPending(now.eta)); err != nil {
			return fmt.Errorf("bound what is pending: %w", err)
		}
		i.assembler.SetEarly(i.cfg.cursorHorizon(now.eta), i.cfg.maxPending(now.eta))
	}
	// Messages that are refused here are filed before the checkpoint. Under the lower bound a process that does the step again, after an
	// operator has raised eta, refuses the same.
	i.assembler.SetEta(min(before.eta, now.eta))
	i.assembler.SetHold(i.cfg.holdAtStep(version))
	advanced := i.assembler.Advance(version)
	i.assembler.SetEta(now.eta)
	i.issuer.applyEffects(advanced)
	if err := i.endMessages(ctx, append(committed.Verdicts, advanced.Verdicts...)); err != nil {
		return err
	}
	return i.planTickets(ctx)
}

// TakeRefusals counts by reason the messages that were not trained on since the last call, including those that the feed itself refused.
func (i *intake) TakeRefusals() map[schemas.Reason]int64 {
	i.countFeedRefusals()
	taken := i.refusals
	i.refusals = map[schemas.Reason]int64{}
	return taken
}

// Forget drops the counts of the step.
func (i *intake) Forget() {
	i.refusals, i.drops.step, i.endings.step = map[schemas.Reason]int64{}, droppedRollouts{}, stepEndings{}
	i.episodeWait.waited, i.episodeWait.ended = 0, 0
}

// queueCounts counts the groups issued and not ready, the groups ready, and the messages of groups yet to be issued.
type queueCounts struct{ waiting, ready, early int }

// Counts returns the present counts.
func (i *intake) Counts() queueCounts {
	waiting, ready, early := i.assembler.Counts()
	return queueCounts{waiting, ready, early}
}

// Close closes the feed.
func (i *intake) Close() {
	if i.feed != nil {
		i.feed.Close()
	}
}

// CloseArchive waits until every archived trajectory is on the disk.
func (i *intake) CloseArchive() error { return errors.Join(i.archive.Close(), i.closeKeeper()) }
