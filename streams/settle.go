package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
)

// finishedKept is how many finished sequences a feed remembers singly before it asks the broker for its
// ack floor.
const finishedKept = 4096

// refuseMessage has a message that was never returned filed in REJECTED: a message in parts at once, for a stranger's messages may stand in
// the place of parts that are missing, and are to be refused themselves.
func (f *Feed) refuseMessage(ctx context.Context, d *Delivery, reason schemas.Reason, detail string, data []byte, replies ...string) error {
	if err := f.queueRejection(d, reason, detail, data); err != nil {
		return err
	}
	// It is in flight until it is filed: sent again, it is known.
	f.book.addInFlight(d.Sequence, replies...)
	f.refused[reason]++
	f.unfiled = true
	if len(replies) > 1 {
		return f.File(ctx)
	}
	return nil
}

// queueRejection has a message filed in REJECTED with the others that wait.
func (f *Feed) queueRejection(d *Delivery, reason schemas.Reason, detail string, data []byte) error {
	from := origin{stream: f.run.names.trajectories, subject: d.subject, sequence: d.Sequence}
	m, err := f.run.newRejection(from, reason, detail, data)
	if err != nil {
		return err
	}
	f.filing.addRejection(m)
	f.refusedBy.countMessage(producerOf(d.subject))
	return nil
}

// Reject moves a message that Next returned to REJECTED, with a detail in words. It is then finished, as if
// acked.
func (f *Feed) Reject(ctx context.Context, d *Delivery, reason schemas.Reason, detail string) error {
	if err := f.RejectSoon(ctx, d, reason, detail); err != nil {
		return err
	}
	return f.File(ctx)
}

// RejectSoon is Reject, but that the message is filed together with others: when some have gathered, when Next finds no message
// that is there already, or by File. Until then the message counts as in flight, and Ack passes it over.
func (f *Feed) RejectSoon(ctx context.Context, d *Delivery, reason schemas.Reason, detail string) error {
	replies, _, unknown := f.book.lookupReplies([]uint64{d.Sequence})
	if len(unknown) > 0 {
		return fmt.Errorf("reject sequence %d: %w", d.Sequence, ErrNotInFlight)
	}
	if len(replies) == 0 || f.filing.holdsSequence(d.Sequence) {
		return nil // finished, or about to be
	}
	var message any = d.Trajectory
	if d.Trajectory == nil {
		message = d.Closed
	}
	data, err := schemas.Marshal(message)
	if err != nil {
		return fmt.Errorf("reject sequence %d: encode: %w", d.Sequence, err)
	}
	if err := f.queueRejection(d, reason, detail, data); err != nil {
		return err
	}
	if f.filing.isFull() {
		return f.File(ctx)
	}
	return nil
}

// RejectCarried stores in REJECTED a trajectory that a checkpoint has carried since it was acked: the stream may have purged it. It
// is idempotent.
func (f *Feed) RejectCarried(ctx context.Context, sequence uint64, t *schemas.Trajectory, reason schemas.Reason, detail string) error {
	data, err := schemas.Marshal(t)
	if err != nil {
		return fmt.Errorf("reject sequence %d: encode: %w", sequence, err)
	}
	names := f.run.names
	from := origin{stream: names.trajectories, subject: names.trajectorySubject(t.OldestVersion(), t.Producer), sequence: sequence}
	m, err := f.run.newRejection(from, reason, detail, data)
	if err != nil {
		return err
	}
	return f.run.storeRejection(ctx, m)
}

// Ack marks messages as done: their effect is in a checkpoint. It returns when the broker has confirmed it, or has lost in a crash the
// record that it sent the messages: it will send them again, and this feed will not return them again. Sequences that were acked before are
// ignored, and so are sequences that wait to be filed in REJECTED, which are acked then. Where a sequence was never returned, Ack fails
// with [ErrNotInFlight] after it has acked the others.
func (f *Feed) Ack(ctx context.Context, sequences ...uint64) error {
	sequences = slices.DeleteFunc(slices.Clone(sequences), f.filing.holdsSequence)
	replies, highest, unknown := f.book.lookupReplies(sequences)
	said := make([]answer, len(replies))
	for i, reply := range replies {
		said[i] = answer{reply, ackDone}
	}
	if err := f.sendAnswers(ctx, said, highest); err != nil {
		return err
	}
	f.book.finishMessages(sequences...)
	if f.book.rememberedCount() > finishedKept {
		f.forgetFinished(ctx)
	}
	if len(unknown) > 0 {
		return fmt.Errorf("ack sequences %v: %w", unknown, ErrNotInFlight)
	}
	return nil
}

// forgetFinished drops from memory the sequences up to the broker's own ack floor. Where that fails, the next Ack tries again.
func (f *Feed) forgetFinished(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	c, err := f.run.js.Consumer(ctx, f.run.names.trajectories, f.options.Durable)
	if err != nil {
		f.run.log.Debug("ack floor not read", "err", err)
		return
	}
	f.book.raiseFloor(c.CachedInfo().AckFloor.Stream)
}

// answer is an acknowledgement of a message at its reply subject.
type answer struct {
	reply string
	kind  ackKind
}

// sendAnswers gives answers, lowest sequence first, and waits for the broker to confirm the last: it
// handles the acknowledgements of a connection in order. After a reconnection in between it begins again.
//
// A broker that was killed may have lost the record that it sent the last messages. It then ignores their acknowledgement, without
// an answer, and will send the messages again; the feed, whose book has them as finished, acks them then. So that is success too.
func (f *Feed) sendAnswers(ctx context.Context, answers []answer, highest uint64) error {
	if len(answers) == 0 {
		return nil
	}
	name, last := f.run.names.trajectories, len(answers)-1
	return f.run.callBroker(ctx, "acknowledge messages", name, func(ctx context.Context) error {
		before := f.run.nc.Stats().Reconnects
		for _, a := range answers[:last] {
			if err := f.run.sendAck(a.reply, a.kind); err != nil {
				return err
			}
		}
		err := f.run.confirmAck(ctx, answers[last].reply, answers[last].kind)
		if silent := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders); silent && ctx.Err() == nil {
			c, lookup := f.run.js.Consumer(ctx, name, f.options.Durable)
			switch {
			case errors.Is(lookup, jetstream.ErrConsumerNotFound):
				// The next subscription makes the consumer again, unless another trainer has taken the seat.
				return f.run.checkSeat(ctx)
			case lookup == nil && c.CachedInfo().Delivered.Stream < highest:
				return nil
			}
		}
		if err == nil && f.run.nc.Stats().Reconnects != before {
			return errInterrupted
		}
		return err
	})
}
