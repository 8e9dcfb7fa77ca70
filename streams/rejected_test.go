package streams_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Defect F9: what a stranger wrote into the headers of a message in REJECTED went to the terminal as it was.
func TestAStrangersHeadersAreShownWithoutControls(t *testing.T) {
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	h := nats.Header{}
	for _, name := range []string{"Weir-Reason", "Weir-Detail", "Weir-Subject", "Weir-Stream"} {
		h.Set(name, "a\x1b]0;owned\x07b\u009bc")
	}
	_, err := conn.NATS().RequestMsgWithContext(t.Context(), &nats.Msg{Subject: "weir.test.rejected.stale", Header: h, Data: []byte("x")})
	require.NoError(t, err)
	const shown = "a ]0;owned b c"
	for m, err := range r.Rejected(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, streams.RejectedMessage{
			Sequence: 1, Reason: shown, Detail: shown, Subject: shown, Stream: shown, At: m.At, Data: []byte("x"),
		}, *m)
	}
}

// Finding O4 of the second review of operating: each refusal waited twice for the broker. Refused messages are filed together, each
// once and in the order in which they were refused, and none is acked before it is filed.
func TestRefusedMessagesAreFiledTogetherAndAckedThen(t *testing.T) {
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	f, err := r.Feed(t.Context(), streams.FeedOptions{Durable: "reader", MaxPending: 1000})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	const messages = 20
	for i := range messages {
		require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(i, 0, 10, 3)))
	}
	floor := func() uint64 {
		c, err := js.Consumer(t.Context(), "WEIR_test_TRAJECTORIES", "reader")
		require.NoError(t, err)
		return c.CachedInfo().AckFloor.Stream
	}
	filed := func() (sequences []uint64) {
		for m, err := range r.Rejected(t.Context()) {
			require.NoError(t, err)
			sequences = append(sequences, m.Original)
		}
		return sequences
	}
	var want []uint64
	for i := range messages {
		d, err := f.Next(t.Context())
		require.NoError(t, err)
		for range 2 { // saying it again changes nothing
			require.NoError(t, f.RejectSoon(t.Context(), d, schemas.ReasonForeign, "message "+strconv.Itoa(i)))
		}
		require.NoError(t, f.Ack(t.Context(), d.Sequence), "its ack waits until it is filed")
		want = append(want, d.Sequence)
		if i == 0 {
			require.Zero(t, floor())
			require.Zero(t, f.Passed())
		}
	}
	require.NoError(t, f.File(t.Context()))
	require.Equal(t, want, filed())
	require.Equal(t, uint64(messages), floor())
	require.Equal(t, uint64(messages), f.Passed())
	require.NoError(t, f.File(t.Context()), "nothing is left")
	require.Len(t, filed(), messages)

	// A reader that ends before it has filed what it refused leaves that to the next.
	require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(messages, 0, 10, 3)))
	d, err := f.Next(t.Context())
	require.NoError(t, err)
	require.NoError(t, f.RejectSoon(t.Context(), d, schemas.ReasonForeign, "unfiled"))
	f.Close()
	require.Len(t, filed(), messages)
	again, err := r.Feed(t.Context(), streams.FeedOptions{Durable: "reader"})
	require.NoError(t, err)
	t.Cleanup(again.Close)
	d, err = again.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(messages+1), d.Sequence)
}

// A flood of what cannot be read is no delivery: the reader is told that nothing of use comes.
func TestAFloodOfGarbageIsIdle(t *testing.T) {
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	f, err := r.Feed(t.Context(), streams.FeedOptions{Idle: 50 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	ended := make(chan struct{})
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		for {
			select {
			case <-ended:
				return
			default:
				_, _ = conn.NATS().Request("weir.test.trajectories.3.p1", []byte("garbage"), time.Second) // the flood may meet the test's end
			}
		}
	}()
	_, err = f.Next(t.Context())
	require.ErrorIs(t, err, streams.ErrIdle)
	close(ended)
	<-flooded
	require.Positive(t, f.Refused()[schemas.ReasonMalformed])
}
