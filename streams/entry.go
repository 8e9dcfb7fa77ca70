package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// entry is what a key of a bucket holds.
type entry struct {
	value  []byte // nil where the key holds nothing
	header nats.Header
	// revision is what a compare-and-set must name. It is not 0 for a key that was deleted.
	revision uint64
}

// keySubject is where a bucket keeps a key.
func keySubject(bucket, key string) string { return "$KV." + bucket + "." + key }

// entry reads a key.
func (r *Run) entry(ctx context.Context, bucket, key string) (e entry, err error) {
	err = r.call(ctx, fmt.Sprintf("read %s of %s", key, bucket), bucket, func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, "KV_"+bucket)
		if err != nil {
			return err
		}
		m, err := stream.GetLastMsgForSubject(ctx, keySubject(bucket, key))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			e = entry{}
			return nil
		}
		if err != nil {
			return err
		}
		e = entry{value: m.Data, header: m.Header, revision: m.Sequence}
		if m.Header.Get("KV-Operation") != "" { // deleted or purged
			e.value, e.header = nil, nil
		}
		return nil
	})
	return e, err
}

// set writes a key if what condition names still holds, which is a revision of this key or of another of the bucket. An
// attempt that was carried out and not answered may look like one that came too late: ok is false for both.
func (r *Run) set(ctx context.Context, bucket, key string, e entry, condition jetstream.PublishOpt) (ok bool, err error) {
	err = r.call(ctx, fmt.Sprintf("write %s of %s", key, bucket), bucket, func(ctx context.Context) error {
		m := &nats.Msg{Subject: keySubject(bucket, key), Header: copyHeader(e.header), Data: e.value}
		_, err := r.js.PublishMsg(ctx, m, condition, jetstream.WithRetryAttempts(0))
		// A replicated stream has an error code of its own for it.
		if hasCode(err, int(jetstream.JSErrCodeStreamWrongLastSequence)) || hasCode(err, int(jetstream.JSErrCodeStreamWrongLastSequenceConstant)) {
			ok = false
			return nil
		}
		ok = err == nil
		return err
	})
	return ok, err
}

// at is the condition that the key that is written is at a revision; 0: that nobody ever wrote it.
func at(revision uint64) jetstream.PublishOpt {
	return jetstream.WithExpectLastSequencePerSubject(revision)
}
