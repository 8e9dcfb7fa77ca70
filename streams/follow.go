package streams

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// followPoll is how often a followed key is also read untold: a word that was lost then costs a delay and no more.
	followPoll = 10 * time.Second
	// followAbsent is how often a bucket that is gone is looked for.
	followAbsent = 500 * time.Millisecond
)

// follow calls fn with the newest value of a key, and with every newer one, skipping those that were overtaken
// while fn ran. A bucket that was made anew, or came back as an older copy, has values that are new however often it was written
// to. It returns fn's error, or nil when ctx ends.
func (r *Run) follow(ctx context.Context, bucket, key string, fn func(value []byte, revision uint64) error) error {
	told, err := r.listen(bucket + "." + key)
	if err != nil {
		return err
	}
	defer told.close()
	poll := time.NewTicker(followPoll)
	defer poll.Stop()
	var last entry
	want, tries := uint64(0), 0 // a replica that lags may not have yet what was told
	for ctx.Err() == nil {
		e, err := r.entry(ctx, bucket, key)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, jetstream.ErrStreamNotFound):
			if wait(ctx, followAbsent) != nil {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		if e.newer(last) {
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
			if wait(ctx, backoffMin) != nil {
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

// followTries bounds the looks for what was told and is not there, as where the bucket has gone since.
const followTries = 100
