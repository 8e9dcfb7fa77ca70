// Package seam has the methods of a run that the packages below streams use: calls to the broker that are tried again, reads of stored
// messages, and the manifests of policy versions. A *streams.Run gives it to them, and to nobody else.
//
//	run := r.Seam() // r is a *streams.Run
//	err := run.Call(ctx, "purge shards", bucket, seam.CallTimeout, func(ctx context.Context) error { return stream.Purge(ctx) })
package seam

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
)

// Run is a run, with the rights of its handle.
type Run interface {
	// Call makes attempts, each bounded by limit, until an attempt succeeds or fails for good, or ctx ends. The denial of a subject
	// that contains needle is a failure for good. what names the call in errors.
	Call(ctx context.Context, what, needle string, limit time.Duration, attempt func(context.Context) error) error
	// Read calls see with the messages of a stream under a subject, from a sequence on, in their order, and at most a window of
	// them. It returns the sequence to go on from, and whether the stream holds more. It also fails with the error of see.
	Read(ctx context.Context, stream, subject string, from uint64, w Window, see func(Message) error) (next uint64, more bool, err error)
	// Manifests are the manifests that the run still holds, newest first.
	Manifests(ctx context.Context) ([]*schemas.Manifest, error)
	// NewestManifest is the newest manifest, and the revision that the next manifest must name, which is also set with
	// streams.ErrNoWeights.
	NewestManifest(ctx context.Context) (*schemas.Manifest, uint64, error)
	// SetManifest publishes a manifest if revision is still the newest. It also reports false where an earlier attempt was carried
	// out and its answer was lost. It fails with streams.ErrFenced where another trainer has taken the seat of this handle.
	SetManifest(ctx context.Context, m *schemas.Manifest, revision uint64) (bool, error)
	// CheckManifest fails where a manifest is not valid or of another run, and with streams.ErrTooLarge where it is too large for
	// a single message.
	CheckManifest(m *schemas.Manifest) error
	// CheckSeat fails with streams.ErrFenced where another trainer has taken the seat of this handle.
	CheckSeat(ctx context.Context) error
	// ShardsBucket is the object store of the run.
	ShardsBucket() string
	JetStream() jetstream.JetStream
	Log() *slog.Logger
}

// Window bounds the messages of a read.
type Window struct {
	Messages int
	Bytes    int
}

// Message is a message as a stream holds it.
type Message struct {
	Sequence uint64
	At       time.Time
	Header   nats.Header
	Data     []byte
}

const (
	// CallTimeout bounds an attempt at a call that moves few bytes.
	CallTimeout = 5 * time.Second
	// LongestPause is the longest pause between two attempts.
	LongestPause = 500 * time.Millisecond
	// ShortReads is how often a message that a stream must hold may be missing, as on a replica that lags behind, before it counts
	// as lost.
	ShortReads = 3
	// CodeStoreFailed is JetStream's error code where a stream is full, or the disk is.
	CodeStoreFailed = 10077
)

// Wait returns after d, or with an error when ctx ends.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Code is the broker's own error in err, nil if there is none.
func Code(err error) *jetstream.APIError {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api
	}
	if js, ok := errors.AsType[jetstream.JetStreamError](err); ok {
		return js.APIError()
	}
	return nil
}

// HasCode is whether err is the broker's error of a code.
func HasCode(err error, code int) bool {
	api := Code(err)
	return api != nil && int(api.ErrorCode) == code
}
