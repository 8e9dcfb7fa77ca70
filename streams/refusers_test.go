package streams_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Finding O4 of the second review of operating: no figure named the producer whose messages were refused. Names are a producer's own
// choice, so their number is bounded.
func TestRefusedMessagesAreCountedByProducer(t *testing.T) {
	run := streamtest.Open(t, streamtest.Conn(t))
	feed, err := run.Feed(t.Context(), streams.FeedOptions{Idle: 100 * time.Millisecond})
	require.NoError(t, err)
	defer feed.Close()
	for range 3 {
		require.NoError(t, run.NATS().Publish("weir.test.trajectories.3.flood", []byte("garbage")))
	}
	require.NoError(t, run.Publish(t.Context(), streamtest.Trajectory(0, 0, 4, 0)))
	for {
		d, err := feed.Next(t.Context())
		if err != nil {
			require.ErrorIs(t, err, streams.ErrIdle)
			break
		}
		require.NoError(t, feed.RejectSoon(t.Context(), d, schemas.ReasonDuplicate, "it came before"))
	}
	require.Equal(t, map[string]int{"flood": 3, "p1": 1}, feed.RefusedBy())
	require.Empty(t, feed.RefusedBy())

	for i := range 40 {
		require.NoError(t, run.NATS().Publish(fmt.Sprintf("weir.test.trajectories.3.made-up-%d", i), []byte("garbage")))
	}
	require.NoError(t, run.NATS().Publish("weir.test.trajectories.3.flood", []byte("garbage")))
	_, err = feed.Next(t.Context())
	require.ErrorIs(t, err, streams.ErrIdle)
	by := feed.RefusedBy()
	require.Equal(t, 1, by["flood"], "a producer keeps its own count")
	require.Equal(t, 10, by[streams.OtherProducers])
	require.Len(t, by, 32)
}
