package streams_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// keep copies the store of a broker that is stopped for it.
func (l *lasting) keep(t *testing.T) (copied string) {
	t.Helper()
	l.broker.Shutdown()
	copied = filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(copied, os.DirFS(l.config.StoreDir)))
	l.start(t)
	return copied
}

// restore starts the broker again with a store that was kept, as one whose last writes never reached the disk.
func (l *lasting) restore(t *testing.T, kept string) {
	t.Helper()
	l.broker.Shutdown()
	l.config.StoreDir = filepath.Join(t.TempDir(), "restored")
	require.NoError(t, os.CopyFS(l.config.StoreDir, os.DirFS(kept)))
	l.start(t)
}

// Defect P2: a stream that came back shorter under a living feed used the sequences that it had lost for other messages, and
// the feed took those for messages that it had returned.
func TestAFeedNoticesThatItsStreamLostMessages(t *testing.T) {
	for name, after := range map[string]int{"it ends before what was read": 1, "it ends where it ended before": 4, "it has grown beyond": 9} {
		t.Run(name, func(t *testing.T) {
			b := newLasting(t)
			r := openWithLease(t, b.connect(t), time.Minute)
			f, err := r.Feed(t.Context(), streams.FeedOptions{})
			require.NoError(t, err)
			defer f.Close()
			publish := func(from, to int) {
				for g := from; g < to; g++ {
					require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(g, 0, 10, 1)))
				}
			}
			publish(0, 2)
			kept := b.keep(t)
			publish(2, 6)
			for range 6 {
				d, err := f.Next(within(t))
				require.NoError(t, err)
				require.NoError(t, f.Ack(t.Context(), d.Sequence))
			}
			known := f.Known()
			require.Equal(t, uint64(6), known.Sequence)
			b.restore(t, kept)
			publish(10, 10+after)
			_, err = f.Next(within(t))
			require.ErrorIs(t, err, streams.ErrStreamTruncated)
			require.ErrorIs(t, f.Purge(t.Context(), 6), streams.ErrStreamTruncated)
			counts, err := r.Counts(t.Context())
			require.NoError(t, err)
			require.Equal(t, 2+after, counts.Trajectories, "nothing was purged")
			// The same for who opens a feed, though the position itself is still there.
			position := f.Identity()
			position.Sequence = 1
			_, err = r.Feed(t.Context(), streams.FeedOptions{From: &position, Known: known})
			require.ErrorIs(t, err, streams.ErrStreamTruncated)
			again, err := r.Feed(t.Context(), streams.FeedOptions{From: &position})
			require.NoError(t, err)
			defer again.Close()
			d, err := again.Next(within(t))
			require.NoError(t, err)
			require.Equal(t, uint64(2), d.Sequence)
		})
	}
}

// A mark that was purged, or is the last message, is no loss.
func TestAFeedGoesOnWhereItsMarkIsPurged(t *testing.T) {
	b := newLasting(t)
	r := openWithLease(t, b.connect(t), time.Minute)
	f, err := r.Feed(t.Context(), streams.FeedOptions{})
	require.NoError(t, err)
	defer f.Close()
	for g := range 3 {
		require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(g, 0, 10, 1)))
		d, err := f.Next(within(t))
		require.NoError(t, err)
		require.NoError(t, f.Ack(t.Context(), d.Sequence))
		if g == 1 {
			require.NoError(t, f.Purge(t.Context(), d.Sequence))
		}
		b.broker.Shutdown()
		b.start(t)
	}
	position := f.Identity()
	position.Sequence = 2
	again, err := r.Feed(t.Context(), streams.FeedOptions{From: &position, Known: f.Known()})
	require.NoError(t, err)
	defer again.Close()
	d, err := again.Next(within(t))
	require.NoError(t, err)
	require.Equal(t, uint64(3), d.Sequence)
}
