package streams_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Defect P6: who published junk under a trajectory's message id before its producer had the broker answer the producer that
// the trajectory is stored, and drop it.
func TestAStrangerDoesNotTakeAMessageID(t *testing.T) {
	config := streamtest.Config(t)
	config.MaxPayload = 128 << 10 // the large one goes in parts
	conn := streamtest.Connect(t, streams.ConnectConfig{Broker: streamtest.StartIn(t, config)})
	r := streamtest.Open(t, conn)
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	small, large, closed := streamtest.Trajectory(1, 0, 10, 1), streamtest.Trajectory(2, 0, 60_000, 1), streamtest.Closed(3, 1, 4)
	junk := []string{small.ID, small.ID + "/p1", large.ID, large.ID + "/p1", "closed/g3-0/1 4/p1", "closed/g3-0/1 4/p1/"}
	for _, id := range junk {
		_, err = js.Publish(t.Context(), "weir.test.trajectories.none.x", []byte("junk"), jetstream.WithMsgID(id))
		require.NoError(t, err)
	}
	// Another trajectory of the same ticket is no retry either.
	other := streamtest.Trajectory(1, 0, 12, 1)
	require.NoError(t, r.Publish(t.Context(), other))
	for range 2 {
		require.NoError(t, r.Publish(t.Context(), small))
		require.NoError(t, r.Publish(t.Context(), large))
		require.NoError(t, r.CloseGroup(t.Context(), closed))
	}
	end := streamtest.Closed(999, 0)
	require.NoError(t, r.CloseGroup(t.Context(), end))
	f, err := r.Feed(t.Context(), streams.FeedOptions{})
	require.NoError(t, err)
	defer f.Close()
	for _, id := range junk { // it is refused, which closes the samples that it names, and hides nothing
		d, err := f.Next(within(t))
		require.NoError(t, err)
		require.Equal(t, schemas.ReasonMalformed, d.Refused, id)
	}
	for _, want := range []*schemas.Trajectory{other, small, large} {
		d, err := f.Next(within(t))
		require.NoError(t, err)
		require.Equal(t, want, d.Trajectory)
	}
	for _, want := range []*schemas.GroupClosed{closed, end} {
		d, err := f.Next(within(t))
		require.NoError(t, err)
		require.Equal(t, want, d.Closed)
	}
}
