package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// acceptMessage turns a message into a delivery. It returns nil, nil where the message is no delivery: a part of a message that is not yet
// whole, a message that came before, or a refused message.
func (f *Feed) acceptMessage(ctx context.Context, msg *nats.Msg) (*Delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	f.book.noteMessage(Mark{Sequence: meta.Sequence.Stream, Stored: meta.Timestamp})
	d := &Delivery{
		Delivery:  schemas.Delivery{Sequence: meta.Sequence.Stream},
		Published: meta.Timestamp.UTC(), subject: msg.Subject,
	}
	own := *d
	d.id = msg.Header.Get(jetstream.MsgIDHeader)
	p, split, err := parsePart(msg.Header)
	if err == nil && split && uint64(p.index) > d.Sequence {
		err = fmt.Errorf("header %s: part %d at sequence %d: the first would be before the stream began", headerPart, p.index, d.Sequence)
	}
	if err != nil {
		switch f.book.classifyMessage(d.Sequence, 1, msg.Reply) {
		case isNew:
			return nil, f.refuseMessage(ctx, d, schemas.ReasonMalformed, err.Error(), msg.Data, msg.Reply)
		case isFinished:
			return nil, f.run.sendAck(msg.Reply, ackDone)
		}
		return nil, nil
	}
	index := 1
	if split {
		index, d.Sequence = p.index, p.firstSequence(d.Sequence)
	}
	if err := f.refuseTorn(ctx, own.Sequence, d.Sequence); err != nil {
		return nil, err
	}
	switch f.book.classifyMessage(d.Sequence, index, msg.Reply) {
	case isReturned:
		return nil, nil
	case isFinished:
		if !f.book.isDoneUpTo(own.Sequence) && index > 1 {
			return nil, f.passTail(ctx, &own, d.Sequence, p, msg)
		}
		return nil, f.run.sendAck(msg.Reply, ackDone)
	case isForged:
		return nil, f.refuseMessage(ctx, &own, schemas.ReasonMalformed, "it claims to be a part of a message that has no such part", msg.Data, msg.Reply)
	}
	if !split {
		return f.judgeMessage(ctx, d, msg.Data, msg.Reply)
	}
	if p.size > maxJoined {
		detail := fmt.Sprintf("%d bytes in %d parts, at most %d", p.size, p.count, maxJoined)
		if err := f.refuseMessage(ctx, d, schemas.ReasonOversized, detail, msg.Data, msg.Reply); err != nil {
			return nil, err
		}
		return f.inPlaceOf(d, schemas.ReasonOversized), nil
	}
	return f.assembleParts(ctx, d, p, msg)
}

// passTail acks a later part of a message that is finished, as where a position lies within the message. A stranger's message that
// only claims to be such a part is refused.
func (f *Feed) passTail(ctx context.Context, own *Delivery, first uint64, p part, msg *nats.Msg) error {
	stored, err := f.readStoredPart(ctx, first)
	if err != nil {
		return err
	}
	genuine := false
	if stored != nil {
		q, ok, err := parsePart(stored.Header)
		genuine = err == nil && ok && q.hash == p.hash
	} else {
		// A message is purged whole: where the first part is gone and this part is not, this is no part of that message.
		stored, err := f.readStoredPart(ctx, own.Sequence)
		if err != nil {
			return err
		}
		genuine = stored == nil
	}
	if !genuine {
		return f.refuseMessage(ctx, own, schemas.ReasonMalformed, "it claims to be a part of a message that has no such part", msg.Data, msg.Reply)
	}
	return f.run.sendAck(msg.Reply, ackDone)
}

// refuseTorn refuses the partial messages that can never be whole, since another message stands where their part should. The broker
// stores the parts of a message together or not at all, so torn messages are a stranger's.
func (f *Feed) refuseTorn(ctx context.Context, sequence, first uint64) error {
	for _, s := range f.book.tornPartials(sequence, first) {
		replies, data, subject := f.book.takePartial(s)
		d := &Delivery{Delivery: schemas.Delivery{Sequence: s}, subject: subject}
		if err := f.refuseMessage(ctx, d, schemas.ReasonMalformed, fmt.Sprintf("a part is missing: sequence %d is another message", sequence), data, replies...); err != nil {
			return err
		}
	}
	return nil
}

// assembleParts keeps a part, and returns the delivery when all parts are there.
func (f *Feed) assembleParts(ctx context.Context, d *Delivery, p part, msg *nats.Msg) (*Delivery, error) {
	whole, missing, mismatch := f.book.collectPart(p, d.Sequence, d.subject, msg.Data, msg.Reply)
	if mismatch {
		alone := *d
		alone.Sequence += uint64(p.index - 1)
		// This message stands where a part of partial messages should: they will never be whole.
		if err := f.refuseTorn(ctx, alone.Sequence, alone.Sequence); err != nil {
			return nil, err
		}
		return nil, f.refuseMessage(ctx, &alone, schemas.ReasonMalformed, "part contradicts the other parts of its message", msg.Data, msg.Reply)
	}
	// Parts come in order. Where the last part is there and an earlier part is not, an earlier feed acked that part; the stream
	// still holds it, unless it was purged. And where the missing parts are more than MaxPending lets the broker send, they would
	// never come.
	stuck := f.book.pendingCount()+len(missing) > f.options.MaxPending
	for _, index := range missing {
		if p.index != p.count && !stuck {
			return nil, nil
		}
		stored, err := f.readStoredPart(ctx, d.Sequence+uint64(index-1))
		if err != nil {
			return nil, err
		}
		q, ok := part{}, false
		if stored != nil {
			q, ok, err = parsePart(stored.Header)
		}
		if stored == nil || !ok || err != nil || q.index != index || q.hash != p.hash {
			replies, data, _ := f.book.takePartial(d.Sequence)
			return nil, f.refuseMessage(ctx, d, schemas.ReasonMalformed, fmt.Sprintf("part %d of %d is not in the stream", index, p.count), data, replies...)
		}
		whole, _, _ = f.book.collectPart(q, d.Sequence, d.subject, stored.Data, "")
	}
	if whole == nil {
		return nil, nil
	}
	replies, _, _ := f.book.takePartial(d.Sequence)
	data, err := joinParts(p, whole.data)
	if err != nil {
		return nil, f.refuseMessage(ctx, d, schemas.ReasonMalformed, err.Error(), msg.Data, replies...)
	}
	return f.judgeMessage(ctx, d, data, replies...)
}

// readStoredPart reads a stored message; nil if the stream does not hold it any more. A replica that lags behind may lack a message that
// the stream holds, and is asked again.
func (f *Feed) readStoredPart(ctx context.Context, sequence uint64) (*jetstream.RawStreamMsg, error) {
	return f.run.readStoredPart(ctx, sequence)
}

// readStoredPart is that of a Feed.
func (r *Run) readStoredPart(ctx context.Context, sequence uint64) (*jetstream.RawStreamMsg, error) {
	name := r.names.trajectories
	for try := 1; ; try++ {
		var m *jetstream.RawStreamMsg
		held := false
		err := r.callBroker(ctx, fmt.Sprintf("read message %d of %s", sequence, name), name, func(ctx context.Context) error {
			stream, err := r.js.Stream(ctx, name)
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
		if !held || try == seam.ShortReads { // purged, or removed by hand
			return nil, nil
		}
		if err := seam.Wait(ctx, backoffMax); err != nil {
			return nil, err
		}
	}
}
