package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/streams/internal/seam"
)

// entry is the value of a key of a bucket.
type entry struct {
	value []byte // nil where the key holds nothing
	// revision is the revision that a compare-and-set must name. It is not 0 for a deleted key.
	revision uint64
	// created is when the bucket was made, stored when the value was written.
	created, stored time.Time
}

// isNewerThan is whether e was written after another entry of its key. A bucket that came back as an older copy gives the revisions that it
// lost to other values; a replica that lags behind shows an earlier value, with its earlier time.
func (e entry) isNewerThan(than entry) bool {
	return !e.created.Equal(than.created) || e.revision > than.revision || e.stored.After(than.stored)
}

// keySubject is where a bucket keeps a key.
func keySubject(bucket, key string) string { return "$KV." + bucket + "." + key }

// readEntry reads a key.
func (r *Run) readEntry(ctx context.Context, bucket, key string) (e entry, err error) {
	err = r.callBroker(ctx, fmt.Sprintf("read %s of %s", key, bucket), bucket, func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, "KV_"+bucket)
		if err != nil {
			return err
		}
		m, err := stream.GetLastMsgForSubject(ctx, keySubject(bucket, key))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			e = entry{created: stream.CachedInfo().Created}
			return nil
		}
		if err != nil {
			return err
		}
		e = entry{value: m.Data, revision: m.Sequence, created: stream.CachedInfo().Created, stored: m.Time}
		if m.Header.Get("KV-Operation") != "" { // deleted or purged
			e.value = nil
		}
		return nil
	})
	return e, err
}

// writeEntry writes a key if the conditions hold, and returns the key's revision: 0 if they do not. Where an attempt was carried out and
// its answer was lost, the next attempt may find that the conditions no longer hold.
func (r *Run) writeEntry(
	ctx context.Context, bucket, key string, value []byte, conditions ...jetstream.PublishOpt,
) (revision uint64, err error) {
	options := append(conditions, jetstream.WithRetryAttempts(0))
	err = r.callBroker(ctx, fmt.Sprintf("write %s of %s", key, bucket), bucket, func(ctx context.Context) error {
		ack, err := r.js.PublishMsg(ctx, &nats.Msg{Subject: keySubject(bucket, key), Header: nats.Header{}, Data: value}, options...)
		// A replicated stream has an error code of its own for a failed condition.
		if seam.HasCode(err, int(jetstream.JSErrCodeStreamWrongLastSequence)) || seam.HasCode(err, int(jetstream.JSErrCodeStreamWrongLastSequenceConstant)) {
			revision = 0
			return nil
		}
		if err == nil {
			revision = ack.Sequence
		}
		return err
	})
	return revision, err
}

// atRevision is the condition that the key is at a revision; 0 is that of a key that nobody ever wrote.
func atRevision(revision uint64) jetstream.PublishOpt {
	return jetstream.WithExpectLastSequencePerSubject(revision)
}

// replaceEntry writes a key over a revision, and reports false where the key has a newer revision. Where this handle has a seat, it also
// fails where another trainer has taken the seat.
func (r *Run) replaceEntry(ctx context.Context, bucket, key string, value []byte, revision uint64) (ok bool, err error) {
	if r.seat != nil {
		revision, err = r.seat.setEntry(ctx, bucket, key, value, revision)
	} else {
		revision, err = r.writeEntry(ctx, bucket, key, value, atRevision(revision))
	}
	return revision != 0, err
}
