package weights

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/ports"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// fixture is a broker with a run on it.
type fixture struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // it is the test's own
	broker *broker.Broker
	config streams.ConnectConfig
	run    *streams.Run
	js     jetstream.JetStream

	listen, store string
}

// shardsBucket is the object store of the fixture's run.
const shardsBucket = "WEIR_run-1_SHARDS"

func newFixture(t *testing.T, tcp bool) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	f := &fixture{t: t, ctx: ctx, store: t.TempDir()}
	if tcp {
		port, err := ports.Reserve()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, port.Release()) })
		f.listen = port.Address
	}
	f.startBroker()
	f.config = streams.ConnectConfig{Broker: f.broker}
	if tcp {
		f.config = streams.ConnectConfig{URL: f.broker.URL()}
	}
	topology := streams.DefaultTopology()
	topology.WeightsKeep = 2
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 8<<20, 8<<20
	var err error
	f.run, err = f.connect(t).Open(ctx, "run-1", topology)
	require.NoError(t, err)
	f.js = f.run.Seam().JetStream()
	return f
}

// startBroker starts a broker on the fixture's store and port.
func (f *fixture) startBroker() {
	f.t.Helper()
	config := broker.DefaultConfig()
	config.Listen, config.StoreDir, config.SyncAlways = f.listen, f.store, true
	b, err := broker.Start(f.t.Context(), config, slog.New(slog.DiscardHandler))
	require.NoError(f.t, err)
	f.t.Cleanup(b.Shutdown)
	f.broker = b
}

// restart stops the broker and starts it again on the same store and port.
func (f *fixture) restart() {
	f.t.Helper()
	f.broker.Shutdown()
	f.startBroker()
}

// connect makes a connection that ends with the test.
func (f *fixture) connect(t *testing.T) *streams.Conn {
	t.Helper()
	c, err := streams.Connect(f.ctx, f.config, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// attach is another process's handle on the run.
func (f *fixture) attach(t *testing.T) *streams.Run {
	t.Helper()
	r, err := f.connect(t).Attach(f.ctx, "run-1")
	require.NoError(t, err)
	return r
}

// objects are the shards that the fixture's broker keeps.
func (f *fixture) objects() objectShards {
	return objectShards{run: f.run.Seam(), bucket: shardsBucket}
}

func sha(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// client is a publisher and a loader over one store.
type client struct {
	publisher *Publisher
	loader    *Loader
	store     shardStore
}

func newClient(t *testing.T, r *streams.Run, config Config) *client {
	t.Helper()
	p, err := NewPublisher(r, config)
	require.NoError(t, err)
	l, err := NewLoader(r, config)
	require.NoError(t, err)
	return &client{publisher: p, loader: l, store: p.store}
}

func (c *client) Publish(ctx context.Context, m *schemas.Manifest, shards map[string][]byte) error {
	c.publisher.store = c.store
	return c.publisher.Publish(ctx, m, shards)
}

// PublishFrom writes the names of the shards into m.
func (c *client) PublishFrom(ctx context.Context, m *schemas.Manifest, source ShardSource) error {
	c.publisher.store = c.store
	named, err := c.publisher.PublishFrom(ctx, m, source)
	if err == nil {
		*m = *named
	}
	return err
}

func (c *client) Load(ctx context.Context, m *schemas.Manifest) ([][]byte, error) {
	c.loader.store = c.store
	return c.loader.Load(ctx, m)
}

func (c *client) Shard(ctx context.Context, s schemas.Shard) ([]byte, error) {
	c.loader.store = c.store
	return c.loader.Shard(ctx, s)
}

func (c *client) Files(ctx context.Context, m *schemas.Manifest, dir string) ([]string, error) {
	c.loader.store = c.store
	return c.loader.Files(ctx, m, dir)
}

// publishWeights publishes whole shards, by hash, through the broker.
func publishWeights(ctx context.Context, r *streams.Run, m *schemas.Manifest, shards map[string][]byte) error {
	p, err := NewPublisher(r, DefaultConfig())
	if err != nil {
		return err
	}
	return p.Publish(ctx, m, shards)
}

// shardOf reads the stored bytes of a shard from the broker.
func shardOf(ctx context.Context, r *streams.Run, shard schemas.Shard) ([]byte, error) {
	l, err := NewLoader(r, DefaultConfig())
	if err != nil {
		return nil, err
	}
	return l.Shard(ctx, shard)
}
