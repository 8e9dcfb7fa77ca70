package weights_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
)

// cutting is a way to a broker whose connections each end after so many bytes to the client. cuts counts them.
func cutting(t *testing.T, to string, after int64) (address string, cuts *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	cuts = new(atomic.Int64)
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			broker, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(broker, client); _ = broker.Close() }()
			go func() {
				if n, _ := io.CopyN(client, broker, after); n == after {
					cuts.Add(1)
				}
				_, _ = client.Close(), broker.Close()
			}()
		}
	}()
	return l.Addr().String(), cuts
}

// Defect P8: a connection that ended three times in one shard, as a slow one does by its deadline, made it corrupt. Each of
// these connections ends in the middle of it, far more often than that.
func TestAnInterruptedShardIsReadOn(t *testing.T) {
	config := streamtest.Config(t)
	config.Listen = streamtest.FreeAddress(t)
	streamtest.StartIn(t, config)
	r := streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{URL: "nats://" + config.Listen}))
	data := make([]byte, 16<<20)
	for i := range data {
		data[i] = byte(i * i >> 8)
	}
	m, shards := streamtest.Weights("test", 1, data)
	require.NoError(t, streamtest.PublishWeights(t.Context(), r, m, shards))
	address, cuts := cutting(t, config.Listen, 3<<20)
	far, err := streamtest.Connect(t, streams.ConnectConfig{URL: "nats://" + address}).Attach(t.Context(), "test")
	require.NoError(t, err)
	got, err := streamtest.Shard(t.Context(), far, m.Shards[0])
	require.NoError(t, err)
	require.Equal(t, data, got)
	require.GreaterOrEqual(t, cuts.Load(), int64(5), "the connection ended while it was read")
}

// A shard of which chunks are gone is corrupt, and said to be.
func TestAShardWithoutItsChunksIsCorrupt(t *testing.T) {
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	m, shards := streamtest.Weights("test", 1, make([]byte, 3<<20))
	require.NoError(t, streamtest.PublishWeights(t.Context(), r, m, shards))
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), "OBJ_WEIR_test_SHARDS")
	require.NoError(t, err)
	require.NoError(t, stream.DeleteMsg(t.Context(), 2))
	_, err = streamtest.Shard(t.Context(), r, m.Shards[0])
	require.ErrorIs(t, err, streams.ErrCorruptShard)
	require.ErrorContains(t, err, "its chunks are not all there")
}

// Defect F9: garbage in the place of the newest manifest ended the trainer at each start. It is written over, and versions rise
// from the newest that can be read, also where a publisher encodes shard by shard, as the trainer does.
func TestAnUnreadableManifestIsWrittenAnew(t *testing.T) {
	for name, publish := range map[string]func(context.Context, *streams.Run, *schemas.Manifest, map[string][]byte) error{
		"whole": func(ctx context.Context, r *streams.Run, m *schemas.Manifest, shards map[string][]byte) error {
			return streamtest.PublishWeights(ctx, r, m, shards)
		},
		"shard by shard": func(ctx context.Context, r *streams.Run, m *schemas.Manifest, shards map[string][]byte) error {
			w, err := weights.NewPublisher(r, weights.DefaultConfig())
			if err != nil {
				return err
			}
			data := shards[m.Shards[0].Hash]
			_, err = w.PublishFrom(ctx, m, func(int) (weights.Blob, error) { return weights.Bytes(data), nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { testUnreadableManifest(t, publish) })
	}
}

func testUnreadableManifest(t *testing.T, publish func(context.Context, *streams.Run, *schemas.Manifest, map[string][]byte) error) {
	t.Helper()
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	first, shards := streamtest.Weights("test", 3, []byte("three"))
	require.NoError(t, publish(t.Context(), r, first, shards))
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "$KV.WEIR_test_WEIGHTS.manifest", []byte("garbage"))
	require.NoError(t, err)
	older, shards := streamtest.Weights("test", 2, []byte("two"))
	require.ErrorIs(t, publish(t.Context(), r, older, shards), streams.ErrFenced)
	next, shards := streamtest.Weights("test", 4, []byte("four"))
	require.NoError(t, publish(t.Context(), r, next, shards))
	latest, err := r.LatestManifest(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, latest.Version)
	_, err = r.Manifest(t.Context(), 3)
	require.NoError(t, err)
}
