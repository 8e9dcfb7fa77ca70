package streams

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// The broker counts how often it delivers a ticket, and not why the ticket came back. A ticket that comes back from a producer that
// drains, or that no engine served, has not failed: the bucket RELEASED counts such deliveries, under the ticket's group and sample,
// and they are subtracted. Every other delivery counts as a failure, so that a ticket that kills its producers is closed in the end.
const (
	// releasedAge is how long a count is kept: a ticket is given back and taken again within minutes.
	releasedAge = 24 * time.Hour
	// releasedBytes bounds the bucket, which has the fences of journals too; a count that finds no room is not kept.
	releasedBytes = 8 << 20
)

// readReleased is the number of a ticket's deliveries that are not to be counted, less than that of all deliveries.
func (r *Run) readReleased(ctx context.Context, ticket string, sent int) (int, error) {
	key := r.names.releasedKey(ticket)
	if sent <= 1 || key == "" {
		return 0, nil
	}
	e, err := r.readReleasedKey(ctx, key)
	if err != nil && ctx.Err() == nil { // the bucket is not there, or the role may not read it
		r.log.Debug("every delivery counts", "ticket", ticket, "err", err)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(e.value))
	if err != nil { // no number, or a stranger's value
		return 0, nil //nolint:nilerr // nothing was released
	}
	return min(max(n, 0), sent-1), nil
}

// storeReleased stores the number of a ticket's deliveries that are not to be counted.
func (r *Run) storeReleased(ctx context.Context, ticket string, n int) error {
	key := r.names.releasedKey(ticket)
	if key == "" {
		return fmt.Errorf("%w: %s is no ticket's subject", ErrName, ticket)
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	_, err := r.writeEntry(ctx, r.names.released, key, []byte(strconv.Itoa(n)))
	return err
}

// dropReleased has the count of a ticket that is done be removed soon, so that the bucket keeps room for fences.
func (r *Run) dropReleased(ctx context.Context, ticket string) {
	if key := r.names.releasedKey(ticket); key != "" {
		r.endedFences.add(endedFence{key: key, bucket: r.endedFences.recallBucket(), ended: time.Now(), returns: r.nc.Stats().Reconnects})
		r.removeFences(ctx, time.Now())
	}
}

// readReleasedKey reads a key of RELEASED.
func (r *Run) readReleasedKey(ctx context.Context, key string) (entry, error) {
	e, err := r.readEntry(ctx, r.names.released, key)
	if err == nil {
		r.endedFences.seeBucket(e.created)
	}
	return e, err
}

// findBucket is when the bucket was made, as this process saw it last. It asks the broker where the process has not seen it yet, and
// is the zero time where the broker does not say.
func (r *Run) findBucket(ctx context.Context) time.Time {
	if created := r.endedFences.recallBucket(); !created.IsZero() {
		return created
	}
	stream, err := r.js.Stream(ctx, "KV_"+r.names.released)
	if err != nil {
		return time.Time{} // what is written next fails too, or is not known to be of this bucket
	}
	r.endedFences.seeBucket(stream.CachedInfo().Created)
	return stream.CachedInfo().Created
}
