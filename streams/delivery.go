package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
)

// finishedKept is how many finished sequences a feed remembers one by one before it asks the broker for its
// ack floor.
const finishedKept = 4096

// accept turns a message into a delivery. It returns nil, nil where there is nothing to return: a part, a
// message seen before, or one that was refused.
func (f *Feed) accept(ctx context.Context, msg jetstream.Msg) (*Delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	f.book.saw(Mark{Sequence: meta.Sequence.Stream, Stored: meta.Timestamp})
	d := &Delivery{Sequence: meta.Sequence.Stream, Published: meta.Timestamp.UTC(), subject: msg.Subject()}
	own := *d
	d.id = msg.Headers().Get(jetstream.MsgIDHeader)
	p, split, err := parsePart(msg.Headers())
	if err == nil && split && uint64(p.index) > d.Sequence {
		err = fmt.Errorf("header %s: part %d at sequence %d: the first would be before the stream began", headerPart, p.index, d.Sequence)
	}
	if err != nil {
		return nil, f.refuse(ctx, d, ReasonMalformed, err.Error(), msg.Data(), msg.Reply())
	}
	index := 1
	if split {
		index, d.Sequence = p.index, p.first(d.Sequence)
	}
	if err := f.refuseTorn(ctx, own.Sequence, d.Sequence); err != nil {
		return nil, err
	}
	switch f.book.meet(d.Sequence, index, msg.Reply()) {
	case isReturned:
		return nil, nil
	case isFinished:
		if !f.book.isDone(own.Sequence) && index > 1 {
			return nil, f.passTail(ctx, &own, d.Sequence, p, msg)
		}
		return nil, f.run.nc.Publish(msg.Reply(), []byte("+ACK"))
	case isForged:
		return nil, f.refuse(ctx, &own, ReasonMalformed, "it claims to be a part of a message that has no such part", msg.Data(), msg.Reply())
	}
	if !split {
		return f.judge(ctx, d, msg.Data(), msg.Reply())
	}
	if p.size > maxJoined {
		detail := fmt.Sprintf("%d bytes in %d parts, at most %d", p.size, p.count, maxJoined)
		if err := f.refuse(ctx, d, ReasonOversized, detail, msg.Data(), msg.Reply()); err != nil {
			return nil, err
		}
		return f.inPlaceOf(d, ReasonOversized), nil
	}
	return f.assemble(ctx, d, p, msg)
}

// passTail handles a later part of a message that is done: of the last one up to a position. A stranger's
// that only claims to be one is refused.
func (f *Feed) passTail(ctx context.Context, own *Delivery, first uint64, p part, msg jetstream.Msg) error {
	stored, err := f.part(ctx, first)
	if err != nil {
		return err
	}
	genuine := false
	if stored != nil {
		q, ok, err := parsePart(stored.Header)
		genuine = err == nil && ok && q.hash == p.hash
	} else {
		// A message is purged whole: where its first part is gone and this one is not, it was none of that message's.
		stored, err := f.part(ctx, own.Sequence)
		if err != nil {
			return err
		}
		genuine = stored == nil
	}
	if !genuine {
		return f.refuse(ctx, own, ReasonMalformed, "it claims to be a part of a message that has no such part", msg.Data(), msg.Reply())
	}
	return f.run.nc.Publish(msg.Reply(), []byte("+ACK"))
}

// refuseTorn refuses the messages of which a part is missing, since another message came in its place. The
// broker stores parts together or not at all, so these are a stranger's.
func (f *Feed) refuseTorn(ctx context.Context, sequence, first uint64) error {
	for _, s := range f.book.torn(sequence, first) {
		replies, data, subject := f.book.take(s)
		d := &Delivery{Sequence: s, subject: subject}
		if err := f.refuse(ctx, d, ReasonMalformed, fmt.Sprintf("a part is missing: sequence %d is another message", sequence), data, replies...); err != nil {
			return err
		}
	}
	return nil
}

// assemble keeps a part and returns the delivery when it was the last that was missing.
func (f *Feed) assemble(ctx context.Context, d *Delivery, p part, msg jetstream.Msg) (*Delivery, error) {
	whole, missing, mismatch := f.book.collect(p, d.Sequence, d.subject, msg.Data(), msg.Reply())
	if mismatch {
		alone := *d
		alone.Sequence += uint64(p.index - 1)
		// It stands where a part of the others should: they will never be whole.
		if err := f.refuseTorn(ctx, alone.Sequence, alone.Sequence); err != nil {
			return nil, err
		}
		return nil, f.refuse(ctx, &alone, ReasonMalformed, "part contradicts the other parts of its message", msg.Data(), msg.Reply())
	}
	// Parts come in order. Where the last is there and another is not, that one was acked by an earlier feed; it
	// is in the stream still, unless it was purged. And where the rest are more than MaxPending lets the broker
	// send, waiting for them would be for ever.
	stuck := f.book.pending()+len(missing) > f.options.MaxPending
	for _, index := range missing {
		if p.index != p.count && !stuck {
			return nil, nil
		}
		stored, err := f.part(ctx, d.Sequence+uint64(index-1))
		if err != nil {
			return nil, err
		}
		q, ok := part{}, false
		if stored != nil {
			q, ok, err = parsePart(stored.Header)
		}
		if stored == nil || !ok || err != nil || q.index != index || q.hash != p.hash {
			replies, data, _ := f.book.take(d.Sequence)
			return nil, f.refuse(ctx, d, ReasonMalformed, fmt.Sprintf("part %d of %d is not in the stream", index, p.count), data, replies...)
		}
		whole, _, _ = f.book.collect(q, d.Sequence, d.subject, stored.Data, "")
	}
	if whole == nil {
		return nil, nil
	}
	replies, _, _ := f.book.take(d.Sequence)
	data, err := join(p, whole.data)
	if err != nil {
		return nil, f.refuse(ctx, d, ReasonMalformed, err.Error(), msg.Data(), replies...)
	}
	return f.judge(ctx, d, data, replies...)
}

// part reads a stored part; nil if the stream does not hold it any more. A replica that lags behind does not have yet what the
// stream holds, and is asked again.
func (f *Feed) part(ctx context.Context, sequence uint64) (*jetstream.RawStreamMsg, error) {
	name := f.run.names.trajectories
	for try := 1; ; try++ {
		var m *jetstream.RawStreamMsg
		held := false
		err := f.run.call(ctx, fmt.Sprintf("read message %d of %s", sequence, name), name, func(ctx context.Context) error {
			stream, err := f.run.js.Stream(ctx, name)
			if err == nil {
				state := stream.CachedInfo().State
				held = state.FirstSeq <= sequence && sequence <= state.LastSeq
				m, err = stream.GetMsg(ctx, sequence)
			}
			return err
		})
		if !errors.Is(err, jetstream.ErrMsgNotFound) {
			return m, err
		}
		if !held || try == maxShortReads { // purged, or removed by hand
			return nil, nil
		}
		if err := wait(ctx, backoffMax); err != nil {
			return nil, err
		}
	}
}

// judge reads a whole message and returns it, or refuses it.
func (f *Feed) judge(ctx context.Context, d *Delivery, data []byte, replies ...string) (*Delivery, error) {
	d.Bytes = len(data)
	if reason, err := f.read(d, data); err != nil {
		if err := f.refuse(ctx, d, reason, err.Error(), data, replies...); err != nil {
			return nil, err
		}
		return f.inPlaceOf(d, reason), nil
	}
	f.book.add(d.Sequence, replies...)
	return d, nil
}

// inPlaceOf is the marker that stands for a refused message; nil where its id does not say which samples it was of.
func (f *Feed) inPlaceOf(d *Delivery, reason Reason) *Delivery {
	group, samples, ok := samplesOf(d.id)
	if !ok {
		return nil
	}
	return &Delivery{
		Sequence: d.Sequence, Published: d.Published, Refused: reason, subject: d.subject,
		Closed: &schemas.GroupClosed{
			Run: f.run.run, Group: group, Cancelled: samples, Why: "refused: " + string(reason), Producer: "feed", ClosedAt: d.Published,
		},
	}
}

// samplesOf reads the samples that a message is of from its id: that of a trajectory, which begins with its ticket's, or of a
// marker.
func samplesOf(id string) (group string, samples []int, ok bool) {
	fields := strings.Split(id, "/")
	if fields[0] == "closed" && len(fields) >= 4 {
		for text := range strings.FieldsSeq(fields[2]) {
			sample, err := strconv.Atoi(text)
			if err != nil || sample < 0 {
				return "", nil, false
			}
			samples = append(samples, sample)
		}
		return fields[1], samples, fields[1] != "" && len(samples) > 0
	}
	at := strings.LastIndexByte(fields[0], '-')
	if at < 1 {
		return "", nil, false
	}
	sample, err := strconv.Atoi(fields[0][at+1:])
	return fields[0][:at], []int{sample}, err == nil && sample >= 0
}

// read decodes a message into d and says what is wrong with it. The memory of data becomes the trajectory's, since
// nobody else has it; what is refused is left as it came.
func (f *Feed) read(d *Delivery, data []byte) (Reason, error) {
	kind, _, err := schemas.Peek(data)
	if err != nil {
		return decodeReason(err), err
	}
	switch kind {
	case schemas.KindTrajectory:
		t := new(schemas.Trajectory)
		undo, err := schemas.Adopt(data, t)
		if err != nil {
			return decodeReason(err), err
		}
		if reason, err := f.check(d, t.Validate(), t.Run, t.Producer, t.OldestVersion()); err != nil {
			undo()
			return reason, err
		}
		d.Trajectory = t
	case schemas.KindGroupClosed:
		g := new(schemas.GroupClosed)
		if err := schemas.Unmarshal(data, g); err != nil {
			return decodeReason(err), err
		}
		if reason, err := f.check(d, g.Validate(), g.Run, g.Producer, int64(schemas.NoVersion)); err != nil {
			return reason, err
		}
		d.Closed = g
	default:
		return ReasonForeign, fmt.Errorf("a %s does not belong here", kind)
	}
	return "", nil
}

// check says whether a message with that fault, of that run, producer and oldest version, may be where d came from.
func (f *Feed) check(d *Delivery, fault error, run, producer string, oldest int64) (Reason, error) {
	if fault != nil {
		return ReasonMalformed, fault
	}
	if run != f.run.run {
		return ReasonForeign, fmt.Errorf("it is of run %.80q", run)
	}
	if want := f.run.names.trajectorySubject(oldest, producer); d.subject != want {
		return ReasonForeign, fmt.Errorf("it came under subject %s, what it says belongs under %.200s", d.subject, want)
	}
	return "", nil
}

// refuse moves a message that was never returned to REJECTED.
func (f *Feed) refuse(ctx context.Context, d *Delivery, reason Reason, detail string, data []byte, replies ...string) error {
	if err := f.move(ctx, d, reason, detail, data, replies...); err != nil {
		return err
	}
	f.refused[reason]++
	return nil
}

// move moves a message to REJECTED.
func (f *Feed) move(ctx context.Context, d *Delivery, reason Reason, detail string, data []byte, replies ...string) error {
	from := origin{stream: f.run.names.trajectories, subject: d.subject, sequence: d.Sequence}
	if err := f.run.reject(ctx, from, reason, detail, data); err != nil {
		return err
	}
	if err := f.acknowledge(ctx, "+TERM "+string(reason), replies, d.Sequence+uint64(max(len(replies), 1)-1)); err != nil {
		return err
	}
	f.book.dismiss(d.Sequence, len(replies))
	return nil
}

// Reject moves a message that Next returned to REJECTED, with a detail in words. It is then finished, as if
// acked.
func (f *Feed) Reject(ctx context.Context, d *Delivery, reason Reason, detail string) error {
	replies, _, unknown := f.book.lookup([]uint64{d.Sequence})
	if len(unknown) > 0 {
		return fmt.Errorf("reject sequence %d: %w", d.Sequence, ErrNotInFlight)
	}
	if len(replies) == 0 {
		return nil // finished before
	}
	var message any = d.Trajectory
	if d.Trajectory == nil {
		message = d.Closed
	}
	data, err := schemas.Marshal(message)
	if err != nil {
		return fmt.Errorf("reject sequence %d: encode: %w", d.Sequence, err)
	}
	return f.move(ctx, d, reason, detail, data, replies...)
}

// RejectCarried keeps in REJECTED a trajectory that stood at a sequence, was acked and may be purged: one that a checkpoint
// has carried since. It is idempotent.
func (f *Feed) RejectCarried(ctx context.Context, sequence uint64, t *schemas.Trajectory, reason Reason, detail string) error {
	data, err := schemas.Marshal(t)
	if err != nil {
		return fmt.Errorf("reject sequence %d: encode: %w", sequence, err)
	}
	names := f.run.names
	from := origin{stream: names.trajectories, subject: names.trajectorySubject(t.OldestVersion(), t.Producer), sequence: sequence}
	return f.run.reject(ctx, from, reason, detail, data)
}

// Ack says that messages are done: their effect is in a checkpoint. It returns when the broker has confirmed
// it, or has forgotten in a crash that it ever sent them: it will send those again, and this feed will not return
// them. Sequences acked before are passed over; one that was never returned is an
// [ErrNotInFlight], and the others are then acked none the less.
func (f *Feed) Ack(ctx context.Context, sequences ...uint64) error {
	replies, highest, unknown := f.book.lookup(sequences)
	if err := f.acknowledge(ctx, "+ACK", replies, highest); err != nil {
		return err
	}
	f.book.finish(sequences...)
	if f.book.remembered() > finishedKept {
		f.forget(ctx)
	}
	if len(unknown) > 0 {
		return fmt.Errorf("ack sequences %v: %w", unknown, ErrNotInFlight)
	}
	return nil
}

// forget drops from memory what the broker itself knows to be finished. A failure leaves it for the next time.
func (f *Feed) forget(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	c, err := f.run.js.Consumer(ctx, f.run.names.trajectories, f.options.Durable)
	if err != nil {
		f.run.log.Debug("ack floor not read", "err", err)
		return
	}
	f.book.raise(c.CachedInfo().AckFloor.Stream)
}

// acknowledge sends one body to every reply subject, lowest sequence first, and waits for the broker to confirm
// the last: it handles the acknowledgements of a connection in order. A reconnection in between starts over.
//
// A broker that was killed may have forgotten that it sent the last ones, and then passes over their
// acknowledgement without an answer. It will send them again, and the book, which has them as finished, acks
// them then: so that is success too.
func (f *Feed) acknowledge(ctx context.Context, body string, replies []string, highest uint64) error {
	replies = sent(replies)
	if len(replies) == 0 {
		return nil
	}
	name, last := f.run.names.trajectories, len(replies)-1
	return f.run.call(ctx, "acknowledge messages", name, func(ctx context.Context) error {
		before := f.run.nc.Stats().Reconnects
		for _, reply := range replies[:last] {
			if err := f.run.nc.Publish(reply, []byte(body)); err != nil {
				return err
			}
		}
		err := f.run.ack(ctx, replies[last], body)
		if silent := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders); silent && ctx.Err() == nil {
			c, lookup := f.run.js.Consumer(ctx, name, f.options.Durable)
			switch {
			case errors.Is(lookup, jetstream.ErrConsumerNotFound):
				// Its next subscription makes it again, unless it went with the seat.
				return f.run.held(ctx)
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

// Purge removes the messages up to a sequence from the stream, which makes room for new ones. Nothing up to
// it may be in flight: purge what is in a checkpoint and acked. A message in parts goes when the sequence has reached its
// last.
func (f *Feed) Purge(ctx context.Context, upTo uint64) error {
	if low := f.book.lowest(); low != 0 && low <= upTo {
		return fmt.Errorf("purge up to %d: sequence %d is not acked", upTo, low)
	}
	name := f.run.names.trajectories
	upTo, err := f.wholeUpTo(ctx, upTo)
	if err != nil {
		return fmt.Errorf("purge %s: %w", name, err)
	}
	if f.run.seat != nil {
		to := f.start
		to.Sequence = upTo
		if _, err := f.run.seat.mark(ctx, f.run.names.control, &to); err != nil {
			return fmt.Errorf("purge %s up to %d: %w", name, upTo, err)
		}
	}
	return f.run.call(ctx, fmt.Sprintf("purge %s up to %d", name, upTo), name, func(ctx context.Context) error {
		s, err := f.run.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		if !s.CachedInfo().Created.Equal(f.start.Created) {
			return &RecreatedError{Stream: name, Want: f.start.Created, Have: s.CachedInfo().Created}
		}
		if err := f.intact(ctx, s.CachedInfo().State, f.book.known()); err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSequence(upTo+1))
	})
}

// wholeUpTo is the highest sequence, not above upTo, that does not leave a message with a part of its parts.
func (f *Feed) wholeUpTo(ctx context.Context, upTo uint64) (uint64, error) {
	if upTo == 0 || f.book.isSingle(upTo) {
		return upTo, nil
	}
	stored, err := f.part(ctx, upTo)
	if err != nil || stored == nil {
		return upTo, err
	}
	if p, ok, err := parsePart(stored.Header); err == nil && ok && p.index < p.count && uint64(p.index) <= upTo {
		return p.first(upTo) - 1, nil
	}
	return upTo, nil
}
