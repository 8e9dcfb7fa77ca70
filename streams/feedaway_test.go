package streams_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Invariant: what the open requests of a feed can bring fits the room for messages.
//
// The broker sends a heartbeat a second to a request that waits. A feed that nobody reads, as while a long step goes on, keeps them all,
// and the client library drops what finds no room: a trajectory that is dropped so comes again after AckWait alone.
func TestInvariantAFeedThatIsNotReadDropsNothing(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	var dropped atomic.Int64
	conn.NATS().SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) { dropped.Add(1) })
	run := streamtest.Open(t, conn)
	feed, err := run.Feed(t.Context(), streams.FeedOptions{MaxPending: 8})
	require.NoError(t, err)
	t.Cleanup(feed.Close)
	publish := func(from, to int) {
		for sample := from; sample < to; sample++ {
			require.NoError(t, run.Publish(t.Context(), streamtest.Trajectory(0, sample, 100, 3)))
		}
	}
	publish(0, 2)
	for range 2 {
		d, err := feed.Next(t.Context())
		require.NoError(t, err)
		require.NoError(t, feed.Ack(t.Context(), d.Sequence))
	}
	// The requests have expired once the broker sends nothing for three heartbeats.
	last, since := conn.NATS().Stats().InMsgs, time.Now()
	require.Eventually(t, func() bool {
		if now := conn.NATS().Stats().InMsgs; now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 3*time.Second
	}, time.Minute, 100*time.Millisecond)
	require.Zero(t, dropped.Load(), "the client library dropped messages while the feed was not read")
	publish(2, 7)
	for sample := 2; sample < 7; sample++ {
		d, err := feed.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, sample, d.Trajectory.Sample)
	}
	require.Zero(t, dropped.Load())
}

// A trainer that publishes a large version does not call Next for many seconds, while trajectories come between the heartbeats: the client
// library has room for as many messages as it asks for, so that each heartbeat took the room of a trajectory ("nats: slow consumer, messages
// dropped" on an inbox of the trainer's, at each publication), which then came again after AckWait, five minutes later, and too stale.
func TestATrajectoryThatComesBetweenHeartbeatsIsNotDropped(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	var dropped atomic.Int64
	conn.NATS().SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) { dropped.Add(1) })
	run := streamtest.Open(t, conn)
	feed, err := run.Feed(t.Context(), streams.FeedOptions{Idle: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(feed.Close)
	publish := func(n int) { require.NoError(t, run.Publish(t.Context(), streamtest.Trajectory(n/8, n%8, 100, 3))) }
	publish(0)
	_, err = feed.Next(t.Context())
	require.NoError(t, err)
	before := conn.NATS().Stats().InMsgs
	require.Eventually(t, func() bool { return conn.NATS().Stats().InMsgs >= before+4 }, time.Minute, 10*time.Millisecond, "four heartbeats")
	for n := 1; n < 40; n++ {
		publish(n)
	}
	for n := 1; n < 40; n++ {
		d, err := feed.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, streamtest.Trajectory(n/8, n%8, 100, 3).ID, d.Trajectory.ID, "they come in their order, and once")
	}
	require.Zero(t, dropped.Load(), "the client library dropped messages while the feed was not read")
}
