package broker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Defect F6: a broker whose disk was full refused every later message, also when there was room again. A bound on the
// size of the broker's files stands for the full disk.
func TestABrokerWhoseDiskWasFullGoesOnWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	target := streamtest.Process(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	connect := func() *streams.Conn { return streamtest.Connect(t, target.Connection()) }
	r := streamtest.Open(t, connect())
	const stored = 3
	for g := range stored {
		require.NoError(t, r.Publish(ctx, streamtest.Trajectory(g, 0, 100, 1)))
	}
	limitFiles(t, target, 1<<10)
	full, giveUp := context.WithTimeout(ctx, 3*time.Second)
	defer giveUp()
	require.Error(t, r.Publish(full, streamtest.Trajectory(stored, 0, 100, 1)), "a full disk takes nothing")

	limitFiles(t, target, unix.RLIM_INFINITY)
	require.NoError(t, r.Publish(ctx, streamtest.Trajectory(stored, 0, 100, 1)))
	feed, err := r.Feed(ctx, streams.FeedOptions{})
	require.NoError(t, err)
	defer feed.Close()
	got := map[string]bool{}
	for len(got) <= stored {
		d, err := feed.Next(ctx)
		require.NoError(t, err)
		require.False(t, got[d.Trajectory.ID], "%s came twice", d.Trajectory.ID)
		got[d.Trajectory.ID] = true
	}
}

// limitFiles bounds the size of every file that the broker's process writes, in bytes.
func limitFiles(t *testing.T, target streamtest.Target, bytes uint64) {
	t.Helper()
	own, is := target.(interface{ Pid() int })
	require.True(t, is, "the broker is a process of its own")
	require.NoError(t, unix.Prlimit(own.Pid(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil))
}
