package streams

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Purge removes the messages up to a sequence from the stream, which makes room for new messages. No message up to the sequence may be in
// flight: purge messages that are in a checkpoint and acked. A message in parts is removed when the sequence has reached its last part.
func (f *Feed) Purge(ctx context.Context, upTo uint64) error {
	if low := f.book.lowestInFlight(); low != 0 && low <= upTo {
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
		if _, err := f.run.seat.markBucket(ctx, f.run.names.control, &to); err != nil {
			return fmt.Errorf("purge %s up to %d: %w", name, upTo, err)
		}
	}
	return f.run.callBroker(ctx, fmt.Sprintf("purge %s up to %d", name, upTo), name, func(ctx context.Context) error {
		s, err := f.run.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		if !s.CachedInfo().Created.Equal(f.start.Created) {
			return &RecreatedError{Stream: name, Want: f.start.Created, Have: s.CachedInfo().Created}
		}
		if err := f.checkIntact(ctx, s.CachedInfo().State, f.book.lastKnown()); err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSequence(upTo+1))
	})
}

// wholeUpTo is the highest sequence, not above upTo, that cuts no message in parts.
func (f *Feed) wholeUpTo(ctx context.Context, upTo uint64) (uint64, error) {
	if upTo == 0 || f.book.isSingle(upTo) {
		return upTo, nil
	}
	stored, err := f.readStoredPart(ctx, upTo)
	if err != nil || stored == nil {
		return upTo, err
	}
	if p, ok, err := parsePart(stored.Header); err == nil && ok && p.index < p.count && uint64(p.index) <= upTo {
		return p.firstSequence(upTo) - 1, nil
	}
	return upTo, nil
}
