package trainer

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// storeless is a run whose store is lost while a shard of the version `at` is being put, and made anew when the trainer asks for it.
type storeless struct {
	Stream
	at         int64
	lose, make func()
	lost, made bool
}

func (l *storeless) PublishWeights(ctx context.Context, m *schemas.Manifest, shards weights.ShardSource) (*schemas.Manifest, error) {
	return l.Stream.PublishWeights(ctx, m, func(i int) (weights.Blob, error) {
		if m.Version == l.at && !l.lost {
			l.lose()
			l.lost = true
		}
		return shards(i)
	})
}

func (l *storeless) Take(ctx context.Context, from *streams.Position) error {
	if l.lost && !l.made {
		l.made = true
		l.make()
	}
	return l.Stream.Take(ctx, from)
}

// Finding O1 of the second review of operating: the trainer ended where the broker's store was lost within a publication.
func TestATrainerGoesOnWhereTheStoreIsLostWhileAShardIsPut(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	run := streamtest.Open(t, conn)
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	cfg := testConfig(t.TempDir())
	cfg.Steps = 5
	producing, stop := context.WithCancel(t.Context())
	var group errgroup.Group
	begin := func() { group.Go(func() error { return produce(producing, run, "p", cfg.Eta) }) }
	begin()
	over, err := OverStreams(run, weights.DefaultConfig())
	require.NoError(t, err)
	stream := &storeless{Stream: over, at: 3, lose: func() {
		stop()
		require.Error(t, group.Wait())
		names := js.StreamNames(t.Context())
		for name := range names.Name() {
			require.NoError(t, js.DeleteStream(t.Context(), name))
		}
		require.NoError(t, names.Err())
	}, make: func() {
		producing, stop = context.WithCancel(t.Context()) //nolint:fatcontext // each life of the producer has one
		streamtest.Open(t, conn)
		group = errgroup.Group{}
		begin()
	}}
	require.NoError(t, Run(t.Context(), cfg, Deps{
		Engine: enginetest.NewBigram(vocab), Stream: stream, Prompts: prompts{vocab}, Log: streamtest.Log(t),
		NewEngine: func(c gpu.Config) (gpu.Engine, error) { return enginetest.BigramOf(c), nil },
	}))
	require.True(t, stream.lost)
	stop()
	require.ErrorIs(t, group.Wait(), context.Canceled)
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Len(t, records, int(cfg.Steps)+1)
	require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil).Err())
	require.NotEqual(t, records[3].Created, records[5].Created, "the streams are new ones")
}
