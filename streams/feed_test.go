package streams_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

func TestIdleFeedTellsHowFarItHasPassedAndHowFullTheStreamIs(t *testing.T) {
	conn := streamtest.Conn(t)
	topology := streams.DefaultTopology()
	topology.MaxTrajectories, topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 10, 1<<20, 1<<20
	r, err := conn.Open(t.Context(), "test", topology)
	require.NoError(t, err)
	f, err := r.Feed(t.Context(), streams.FeedOptions{Idle: 50 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	idle := func(passed uint64, full float64) {
		t.Helper()
		now := -1.0
		for tries := 0; f.Passed() != passed || math.Abs(now-full) > 0.01; tries++ { // the broker takes its time
			require.Less(t, tries, 1000, "passed %d, full %v", f.Passed(), now)
			_, err := f.Next(t.Context())
			require.ErrorIs(t, err, streams.ErrIdle)
			now, err = f.Fullness(t.Context())
			require.NoError(t, err)
		}
	}
	idle(0, 0)
	require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(0, 0, 10, 1)))
	d, err := f.Next(t.Context())
	for errors.Is(err, streams.ErrIdle) {
		d, err = f.Next(t.Context())
	}
	require.NoError(t, err)
	idle(1, 0.1)

	subject := "weir.test.trajectories.0.junk"
	for range 4 {
		require.NoError(t, conn.NATS().Publish(subject, []byte("junk")))
	}
	idle(5, 0.5)
	first := &nats.Msg{Subject: subject, Header: nats.Header{}, Data: []byte("the first of two parts")}
	first.Header.Set("Weir-Part", "1/2")
	first.Header.Set("Weir-Size", "44")
	first.Header.Set("Weir-Hash", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
	require.NoError(t, conn.NATS().PublishMsg(first))
	idle(5, 0.6) // its other part may yet come
	require.NoError(t, conn.NATS().Publish(subject, make([]byte, 900<<10)))
	idle(7, 0.88)

	require.NoError(t, f.Ack(t.Context(), d.Sequence))
	require.NoError(t, f.Purge(t.Context(), f.Passed()))
	idle(7, 0)
}

func TestWeightsGoThroughTheSmallestPayloadLimit(t *testing.T) {
	config := streamtest.Config(t)
	config.MaxPayload = 64 << 10
	broker := streamtest.StartIn(t, config)
	r := streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{Broker: broker}))
	data := make([]byte, 300<<10)
	for i := range data {
		data[i] = byte(i * i >> 8)
	}
	m, shards := streamtest.Weights("test", 1, data)
	require.NoError(t, r.PublishWeights(t.Context(), m, shards))
	back, err := r.Shard(t.Context(), m.Shards[0])
	require.NoError(t, err)
	require.Equal(t, data, back)
}

// Defect P7: what may be pending was bound for the life of a feed, and nobody could see that the bound was reached.
func TestTheBoundOfWhatIsPendingCanBeSeenAndMoved(t *testing.T) {
	r := streamtest.Open(t, streamtest.Conn(t))
	f, err := r.Feed(t.Context(), streams.FeedOptions{Idle: 100 * time.Millisecond, MaxPending: 2})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	for sample := range 3 {
		require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(0, sample, 10, 1)))
	}
	next := func() {
		t.Helper()
		_, err := f.Next(t.Context())
		for errors.Is(err, streams.ErrIdle) {
			_, err = f.Next(t.Context())
		}
		require.NoError(t, err)
	}
	next()
	next()
	_, err = f.Next(t.Context())
	require.ErrorIs(t, err, streams.ErrIdle, "the third would be one too many")
	full, err := f.Fullness(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 1, full, 0)

	require.Error(t, f.SetMaxPending(t.Context(), -1))
	require.NoError(t, f.SetMaxPending(t.Context(), 4))
	next()
	full, err = f.Fullness(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 0.75, full, 0)
}
