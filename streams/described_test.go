package streams_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
)

// The broker writes a description and its checksum one after the other, and passes over what it was killed between the two of:
// each trainer that opened its run again had it write those of the buckets, and of the producers' consumer, for nothing.
func TestWhatIsAsItShouldBeIsNotDescribedAnew(t *testing.T) {
	t.Parallel()
	b := newLasting(t)
	conn := b.connect(t)
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 64<<20, 8<<20
	open := func() {
		_, err := conn.Open(t.Context(), "test", topology)
		require.NoError(t, err)
	}
	open()
	root := filepath.Join(b.config.StoreDir, "jetstream", "$G", "streams")
	before := map[string]os.FileInfo{}
	for _, pattern := range []string{"*/meta.inf", "*/obs/*/meta.inf"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, f := range files {
			before[f], err = os.Stat(f)
			require.NoError(t, err)
		}
	}
	open()
	for f, was := range before {
		now, err := os.Stat(f)
		require.NoError(t, err)
		require.True(t, os.SameFile(was, now), "%s is written anew", f)
	}

	topology.Lease, topology.ShardsMaxBytes = 7*time.Minute, 77<<20
	open()
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	producers, err := js.Consumer(t.Context(), "WEIR_test_TICKETS", "producers")
	require.NoError(t, err)
	require.Equal(t, topology.Lease, producers.CachedInfo().Config.AckWait)
	shards, err := js.Stream(t.Context(), "OBJ_WEIR_test_SHARDS")
	require.NoError(t, err)
	require.Equal(t, topology.ShardsMaxBytes, shards.CachedInfo().Config.MaxBytes)
}
