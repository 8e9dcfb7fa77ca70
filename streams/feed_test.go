package streams_test

import (
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
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
	require.NoError(t, streamtest.PublishWeights(t.Context(), r, m, shards))
	back, err := streamtest.Shard(t.Context(), r, m.Shards[0])
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

// Defect F4: what the feed refused closed no sample, so that a producer of another wire version stopped the run.
func TestARefusedMessageClosesTheSamplesThatItsIDNames(t *testing.T) {
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	f, err := r.Feed(t.Context(), streams.FeedOptions{Idle: 100 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	for _, c := range []struct {
		id      string
		header  nats.Header
		group   string
		samples []int
		reason  schemas.Reason
	}{
		{id: "g000001-a0-3", group: "g000001-a0", samples: []int{3}, reason: schemas.ReasonMalformed},
		{id: "g000001-a0-4/p1/0123", group: "g000001-a0", samples: []int{4}, reason: schemas.ReasonMalformed},
		{id: "closed/g000002-a1/0 2/p1/0123", group: "g000002-a1", samples: []int{0, 2}, reason: schemas.ReasonMalformed},
		{id: "g000001-a0-5", header: nats.Header{
			"Weir-Part": {"1/2"}, "Weir-Size": {"1099511627776"}, "Weir-Hash": {strings.Repeat("0", 64)},
		}, group: "g000001-a0", samples: []int{5}, reason: schemas.ReasonOversized},
		{id: ""},
		{id: "junk"},
		{id: "g000001-a0-x"},
		{id: "-1"},
		{id: "replay/7"},
		{id: "closed/g000002-a1/x/p1"},
		{id: "closed//1/p1"},
	} {
		m := &nats.Msg{Subject: "weir.test.trajectories.0.p1", Data: []byte("junk"), Header: nats.Header{}}
		maps.Copy(m.Header, c.header)
		if c.id != "" {
			m.Header.Set(jetstream.MsgIDHeader, c.id)
		}
		ack, err := js.PublishMsg(t.Context(), m)
		require.NoError(t, err)
		d, err := f.Next(t.Context())
		for errors.Is(err, streams.ErrIdle) && f.Passed() < ack.Sequence {
			d, err = f.Next(t.Context())
		}
		if c.group == "" {
			require.ErrorIs(t, err, streams.ErrIdle, "%q names no sample", c.id)
			continue
		}
		require.NoError(t, err, c.id)
		require.Equal(t, ack.Sequence, d.Sequence)
		require.Equal(t, c.reason, d.Refused)
		require.Nil(t, d.Trajectory)
		require.Equal(t, []any{"test", c.group, c.samples}, []any{d.Closed.Run, d.Closed.Group, d.Closed.Cancelled})
		require.NoError(t, f.Ack(t.Context(), d.Sequence), "it has ended already, which does no harm")
	}
	behind, err := f.Behind(t.Context())
	require.NoError(t, err)
	require.False(t, behind)
}

// What was deleted at the end of the stream is not on its way any more.
func TestAFeedKnowsWhetherAnythingIsLeftToRead(t *testing.T) {
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), "WEIR_test_TRAJECTORIES")
	require.NoError(t, err)
	f, err := r.Feed(t.Context(), streams.FeedOptions{Idle: 100 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	behind := func() bool {
		t.Helper()
		behind, err := f.Behind(t.Context())
		require.NoError(t, err)
		return behind
	}
	require.False(t, behind(), "there is nothing yet")
	for sample := range 3 {
		require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(0, sample, 10, 1)))
	}
	require.True(t, behind())
	require.NoError(t, stream.DeleteMsg(t.Context(), 3))
	require.True(t, behind(), "two are left")
	require.NoError(t, stream.DeleteMsg(t.Context(), 2))
	require.True(t, behind(), "one is left")
	_, err = f.Next(t.Context())
	for errors.Is(err, streams.ErrIdle) {
		_, err = f.Next(t.Context())
	}
	require.NoError(t, err)
	require.False(t, behind())
	require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(1, 0, 10, 1)))
	require.True(t, behind())
}
