package streams

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/streams/internal/seam"
)

const (
	// followPoll is how often a followed key is read without a notice: a lost notice then costs no more than a delay.
	followPoll = 10 * time.Second
	// followAbsent is how often a bucket that is gone is looked for.
	followAbsent = 500 * time.Millisecond
)

// followKey calls fn with the newest value of a key and with each newer value; of several that are written while fn runs it calls fn
// with the newest alone. The values of a bucket that was made anew, or came back as an older copy, count as new at any revision.
// follow returns fn's error, or nil when ctx ends.
func (r *Run) followKey(ctx context.Context, bucket, key string, fn func(value []byte, revision uint64) error) error {
	told, err := r.listenStored(bucket + "." + key)
	if err != nil {
		return err
	}
	defer told.stopListening()
	poll := time.NewTicker(followPoll)
	defer poll.Stop()
	var last entry
	want, tries := uint64(0), 0 // a replica that lags behind may lack the revision of the notice
	for ctx.Err() == nil {
		e, err := r.readEntry(ctx, bucket, key)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, jetstream.ErrStreamNotFound):
			if seam.Wait(ctx, followAbsent) != nil {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		if e.isNewerThan(last) {
			last = entry{revision: e.revision, created: e.created, stored: e.stored}
			if e.value != nil {
				if err := fn(e.value, e.revision); err != nil {
					return err
				}
			}
			continue
		}
		if e.revision < want && tries > 0 {
			tries--
			if seam.Wait(ctx, backoffMin) != nil {
				return nil
			}
			continue
		}
		select {
		case <-ctx.Done():
		case want = <-told.again:
			tries = followTries
		case <-poll.C:
		}
	}
	return nil
}

// followTries bounds the reads for a revision of which a notice came and which is not there, as where the bucket is gone.
const followTries = 100
