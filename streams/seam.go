package streams

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// Seam is the run as the packages below this package use it.
func (r *Run) Seam() seam.Run { return seamRun{r} }

// seamRun is a seam.Run.
type seamRun struct{ run *Run }

func (s seamRun) Call(ctx context.Context, what, needle string, limit time.Duration, attempt func(context.Context) error) error {
	return retryWithin(ctx, s.run.log, what, limit, IsTransient, func(ctx context.Context) error {
		return s.run.conn.guardCall(ctx, needle, attempt)
	})
}

func (s seamRun) Read(
	ctx context.Context, stream, subject string, from uint64, w seam.Window, see func(seam.Message) error,
) (next uint64, more bool, err error) {
	return s.run.readMessages(ctx, stream, subject, from, w, see)
}

func (s seamRun) Manifests(ctx context.Context) ([]*schemas.Manifest, error) {
	return s.run.readManifests(ctx)
}

func (s seamRun) NewestManifest(ctx context.Context) (*schemas.Manifest, uint64, error) {
	return s.run.latestManifest(ctx)
}

func (s seamRun) SetManifest(ctx context.Context, m *schemas.Manifest, revision uint64) (bool, error) {
	data, err := schemas.Marshal(m)
	if err != nil {
		return false, err
	}
	return s.run.replaceEntry(ctx, s.run.names.weights, manifestKey, data, revision)
}

func (s seamRun) CheckManifest(m *schemas.Manifest) error {
	if err := s.run.checkOwn(m.Run, m.Validate()); err != nil {
		return err
	}
	return s.run.ManifestFits(m)
}

func (s seamRun) CheckSeat(ctx context.Context) error { return s.run.checkSeat(ctx) }

func (s seamRun) ShardsBucket() string { return s.run.names.shards }

func (s seamRun) JetStream() jetstream.JetStream { return s.run.js }

func (s seamRun) Log() *slog.Logger { return s.run.log }

// The errors of package weights that callers tell apart.
var (
	// ErrCorruptShard is returned when the bytes of a shard do not have the hash that names the shard.
	ErrCorruptShard = errors.New("corrupt shard")
	// ErrNoShard is returned when no shard of that hash is stored; the version that named it is no longer kept.
	ErrNoShard = errors.New("no such shard")
	// ErrShardsFull is returned when the broker keeps as many bytes of weights as it may.
	ErrShardsFull = errors.New("no room for shards")
)
