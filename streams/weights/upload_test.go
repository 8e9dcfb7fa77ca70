package weights

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// eventful is a blob that calls a function when its bytes from an offset on are first read.
type eventful struct {
	Blob
	from int64
	do   func()
	done atomic.Bool
}

func (e *eventful) ReadAt(p []byte, at int64) (int, error) {
	if at >= e.from && e.done.CompareAndSwap(false, true) {
		e.do()
	}
	return e.Blob.ReadAt(p, at)
}

// chunkSets are the objects of which the broker has chunks, with the number of chunks.
func chunkSets(t *testing.T, o objectShards) map[string]uint64 {
	t.Helper()
	stream, err := o.run.JetStream().Stream(t.Context(), o.streamName())
	require.NoError(t, err)
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(o.chunkPrefix()+">"))
	require.NoError(t, err)
	return info.State.Subjects
}

// Finding O5 of the second review of operating: a put whose context ended in the middle, as at a stop or a reconnection, left its
// chunks in the broker.
// Invariant: a put that ends in the middle leaves no chunks, as long as the broker answers.
func TestAPutThatEndsInTheMiddleLeavesNoChunks(t *testing.T) {
	data := []byte(strings.Repeat("weights!", 1<<20)) // nine chunks
	for name, at := range map[string]int64{"in the middle": 4 << 20, "at the end": int64(len(data)) - 1} {
		t.Run("context ends "+name, func(t *testing.T) {
			f := newFixture(t, true)
			store := f.objects()
			ctx, stop := context.WithCancel(f.ctx)
			_, err := store.putShard(ctx, sha(data), &eventful{Blob: Bytes(data), from: at - objectChunk, do: stop})
			require.ErrorIs(t, err, context.Canceled)
			require.Empty(t, chunkSets(t, store))
		})
		t.Run("connection is made again "+name, func(t *testing.T) {
			f := newFixture(t, true)
			store := f.objects()
			again := func() {
				require.NoError(t, f.run.NATS().ForceReconnect())
				require.Eventually(t, func() bool { return f.run.NATS().Stats().Reconnects > 0 && f.run.NATS().IsConnected() }, time.Minute, time.Millisecond)
			}
			_, err := store.putShard(f.ctx, sha(data), &eventful{Blob: Bytes(data), from: at - objectChunk, do: again})
			require.NoError(t, err)
			require.Len(t, chunkSets(t, store), 1)
			m, _ := weightsOf(0, 1)
			m.Shards[0].Hash, m.Shards[0].Size = sha(data), int64(len(data))
			got, err := shardOf(f.ctx, f.run, m.Shards[0])
			require.NoError(t, err)
			require.Equal(t, sha(data), sha(got))
		})
	}
}

// A blob that fails leaves nothing either.
func TestAShardThatCannotBeReadLeavesNoChunks(t *testing.T) {
	f := newFixture(t, false)
	store := f.objects()
	fault := errors.New("the disk is gone")
	_, err := store.putShard(f.ctx, sha([]byte("x")), failing{Bytes(make([]byte, 4<<20)), fault})
	require.ErrorIs(t, err, fault)
	require.Empty(t, chunkSets(t, store))
}

type failing struct {
	Blob
	err error
}

func (f failing) ReadAt(p []byte, at int64) (int, error) {
	if at >= 2<<20 {
		return 0, f.err
	}
	return f.Blob.ReadAt(p, at)
}

// Where the broker goes away in the middle and the publisher with it, a sweep removes what is left.
func TestWhatAPutLeavesInALostBrokerIsSwept(t *testing.T) {
	f := newFixture(t, true)
	store := f.objects()
	data := []byte(strings.Repeat("weights!", 1<<20))
	ctx, stop := context.WithCancel(f.ctx)
	_, err := store.putShard(ctx, sha(data), &eventful{Blob: Bytes(data), from: 6 << 20, do: func() {
		require.Eventually(t, func() bool { return len(chunkSets(t, store)) == 1 }, time.Minute, time.Millisecond)
		f.broker.Shutdown()
		stop()
	}})
	require.ErrorIs(t, err, context.Canceled)
	f.startBroker()
	later := objectShards{run: f.attach(t).Seam(), bucket: shardsBucket}
	require.Len(t, chunkSets(t, later), 1)
	require.NoError(t, later.sweepUnfinished(f.ctx, time.Hour))
	require.Len(t, chunkSets(t, later), 1, "another publisher's put may be under way")
	require.NoError(t, later.sweepUnfinished(f.ctx, 0))
	require.Empty(t, chunkSets(t, later))
}

// The broker that refuses an object's description, as where the store is full by then, keeps no chunks of it: they would take the room of
// the next put until a sweep.
func TestAnObjectWhoseDescriptionIsRefusedLeavesNoChunks(t *testing.T) {
	f := newFixture(t, false)
	store := f.objects()
	data := make([]byte, 2*objectChunk)
	stream, err := f.js.Stream(t.Context(), store.streamName())
	require.NoError(t, err)
	bounded := stream.CachedInfo().Config
	bounded.MaxMsgs, bounded.Discard = 3, jetstream.DiscardNew // three chunks, and no description
	_, err = f.js.UpdateStream(t.Context(), bounded)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(f.ctx, 2*time.Second)
	defer cancel()
	data = append(data, 1)
	_, err = store.putShard(ctx, sha(data), Bytes(data))
	require.Error(t, err)
	require.Empty(t, chunkSets(t, store))
}

// A shard whose description stands and of whose chunks some are gone is stored again when it is put again: it is unreadable until then.
func TestAShardWithoutAllOfItsChunksIsStoredAgain(t *testing.T) {
	f := newFixture(t, false)
	store := f.objects()
	data := []byte(strings.Repeat("weights!", 1<<19))
	_, err := store.putShard(f.ctx, sha(data), Bytes(data))
	require.NoError(t, err)
	stream, err := f.js.Stream(f.ctx, store.streamName())
	require.NoError(t, err)
	require.NoError(t, stream.DeleteMsg(f.ctx, 2))
	shard := schemas.Shard{Hash: sha(data), FullHash: sha(data), Size: int64(len(data)), Encoding: schemas.EncodingSafetensors}
	_, err = shardOf(f.ctx, f.run, shard)
	require.ErrorIs(t, err, streams.ErrCorruptShard)
	_, err = store.putShard(f.ctx, sha(data), Bytes(data))
	require.NoError(t, err)
	got, err := shardOf(f.ctx, f.run, shard)
	require.NoError(t, err)
	require.Equal(t, sha(data), sha(got))
	require.Len(t, chunkSets(t, store), 1, "the chunks that were left are gone")
}
