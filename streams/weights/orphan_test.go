package weights

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// aged is a store that says of some shards that they have been there for longer.
type aged struct {
	shardStore
	by map[string]time.Duration
}

func (a aged) listShards(ctx context.Context) (map[string]time.Duration, error) {
	shards, err := a.shardStore.listShards(ctx)
	for hash := range shards {
		shards[hash] += a.by[hash]
	}
	return shards, err
}

// Defect S8: what a publisher left that died between the shards and the manifest stayed in the broker for ever.
func TestAShardThatNoManifestNamesGoesWhenItIsOld(t *testing.T) {
	f := newFixture(t, false)
	store := f.objects()
	old, fresh, used := []byte("left behind"), []byte("being published"), []byte("weights")
	for _, data := range [][]byte{old, fresh, used} {
		_, err := store.putShard(t.Context(), schemas.ContentHash(data), Bytes(data))
		require.NoError(t, err)
	}
	w := newClient(t, f.run, DefaultConfig())
	w.store = aged{shardStore: store, by: map[string]time.Duration{schemas.ContentHash(old): orphanAge, schemas.ContentHash(used): orphanAge}}
	hash := strings.Repeat("0", 64)
	m := &schemas.Manifest{
		Run: "run-1", Base: schemas.NoBase, Config: []byte("{}"), ConfigHash: hash, TokenizerHash: hash, DType: "float32",
		Shards: []schemas.Shard{{Hash: schemas.ContentHash(used), FullHash: schemas.ContentHash(used), Size: int64(len(used)), Encoding: schemas.EncodingSafetensors}},
	}
	m.ConfigHash = schemas.ContentHash(m.Config)
	require.NoError(t, w.Publish(t.Context(), m, map[string][]byte{schemas.ContentHash(used): used}))
	left, err := store.listShards(t.Context())
	require.NoError(t, err)
	require.Contains(t, left, schemas.ContentHash(used))
	require.Contains(t, left, schemas.ContentHash(fresh), "another publisher may be about to name it")
	require.NotContains(t, left, schemas.ContentHash(old))

	// Finding O5 of the second review of operating: what turned ten minutes old just after a look stayed for ten more.
	w.store.(aged).by[schemas.ContentHash(fresh)] = orphanAge
	w.publisher.swept = w.publisher.swept.Add(-sweepEvery)
	next := *m
	next.Version++
	require.NoError(t, w.Publish(t.Context(), &next, map[string][]byte{schemas.ContentHash(used): used}))
	left, err = store.listShards(t.Context())
	require.NoError(t, err)
	require.Contains(t, left, schemas.ContentHash(used))
	require.NotContains(t, left, schemas.ContentHash(fresh))
}

// oldChunks is a store whose unfinished objects have all been there for long.
type oldChunks struct{ shardStore }

func (o oldChunks) sweepUnfinished(ctx context.Context, _ time.Duration) error {
	return o.shardStore.sweepUnfinished(ctx, 0)
}

// A publisher that dies in the middle of a version leaves chunks. Where they take the room of the next version, they are removed first:
// every later start would end with a full store otherwise.
func TestWhatADeadPublisherLeftDoesNotFillTheStore(t *testing.T) {
	f := newFixture(t, false)
	store := f.objects()
	stream, err := f.js.Stream(t.Context(), store.streamName())
	require.NoError(t, err)
	bounded := stream.CachedInfo().Config
	bounded.MaxBytes = 4 << 20
	_, err = f.js.UpdateStream(t.Context(), bounded)
	require.NoError(t, err)
	for range 3 {
		_, err := f.js.Publish(t.Context(), store.chunkPrefix()+"left", make([]byte, 1_000_000))
		require.NoError(t, err)
	}
	m, shards := weightsOf(0, 1)
	data := make([]byte, 2<<20)
	hash := schemas.ContentHash(data)
	m.Shards[0].Hash, m.Shards[0].FullHash, m.Shards[0].Size = hash, hash, int64(len(data))
	shards[hash] = data
	w := newClient(t, f.run, DefaultConfig())
	require.ErrorIs(t, w.Publish(t.Context(), m, shards), streams.ErrShardsFull, "another publisher's put may be under way")
	require.Len(t, chunkSets(t, store), 1)
	w.store = oldChunks{store}
	require.NoError(t, w.Publish(t.Context(), m, shards))
}

// slowClock is a run whose broker's clock is behind this machine's: what is stored just now seems old to this machine.
type slowClock struct {
	seam.Run
	by time.Duration
}

func (s slowClock) Read(ctx context.Context, stream, subject string, from uint64, w seam.Window, see func(seam.Message) error) (uint64, bool, error) {
	return s.Run.Read(ctx, stream, subject, from, w, func(m seam.Message) error {
		m.At = m.At.Add(-s.by)
		return see(m)
	})
}

func (s slowClock) JetStream() jetstream.JetStream { return slowStreams{s.Run.JetStream(), s.by} }

type slowStreams struct {
	jetstream.JetStream
	by time.Duration
}

func (s slowStreams) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := s.JetStream.Stream(ctx, name)
	if err == nil {
		stream.CachedInfo().TimeStamp = stream.CachedInfo().TimeStamp.Add(-s.by)
	}
	return stream, err
}

// The age of a shard that no manifest names is by the broker's clock: by a clock of this machine that is ahead, the shards that another
// publisher is about to name would go.
func TestTheAgeOfAnOrphanIsByTheBrokersClock(t *testing.T) {
	f := newFixture(t, false)
	store := objectShards{run: slowClock{f.run.Seam(), 2 * orphanAge}, bucket: shardsBucket}
	fresh := []byte("being published")
	_, err := store.putShard(t.Context(), schemas.ContentHash(fresh), Bytes(fresh))
	require.NoError(t, err)
	w := newClient(t, f.run, DefaultConfig())
	w.store = store
	m, blobs := weightsOf(0, 1)
	require.NoError(t, w.Publish(t.Context(), m, blobs))
	left, err := store.listShards(t.Context())
	require.NoError(t, err)
	require.Contains(t, left, schemas.ContentHash(fresh))
}
