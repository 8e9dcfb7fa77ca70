package streams_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// What a feed reads for an archive is every message as it was published: small, in parts, unreadable, and the parts of a stranger that
// are not whole.
func TestStoredMessagesAreReadAsTheyWerePublished(t *testing.T) {
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	f, err := r.Feed(t.Context(), streams.FeedOptions{})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	empty, err := f.ReadStored(t.Context(), 0, 100, 1<<20)
	require.NoError(t, err)
	require.Equal(t, &streams.StoredSpan{}, empty)

	var want [][]byte
	publish := func(tr *schemas.Trajectory) {
		t.Helper()
		require.NoError(t, r.Publish(t.Context(), tr))
		data, err := schemas.Marshal(tr)
		require.NoError(t, err)
		want = append(want, data)
	}
	publish(streamtest.Trajectory(0, 0, 10, 1))
	large := streamtest.Trajectory(0, 1, int(conn.NATS().MaxPayload())/8, 1)
	for i := range large.Segments[0].Tokens {
		large.Segments[0].Tokens[i] = int32(i % 1000)
	}
	publish(large)
	subject := "weir.test.trajectories.0.junk"
	require.NoError(t, conn.NATS().Publish(subject, []byte("junk")))
	torn := &nats.Msg{Subject: subject, Header: nats.Header{}, Data: []byte("the first of two parts")}
	torn.Header.Set("Weir-Part", "1/2")
	torn.Header.Set("Weir-Size", "44")
	torn.Header.Set("Weir-Hash", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
	require.NoError(t, conn.NATS().PublishMsg(torn))
	want = append(want, []byte("junk"), torn.Data)
	publish(streamtest.Trajectory(0, 2, 10, 1))
	closed := streamtest.Closed(1, 0)
	require.NoError(t, r.CloseGroup(t.Context(), closed))
	data, err := schemas.Marshal(closed)
	require.NoError(t, err)
	want = append(want, data)

	for _, window := range []int{1, 1000, 1 << 30} {
		var have [][]byte
		sequences := []uint64{}
		at := uint64(0)
		for {
			span, err := f.ReadStored(t.Context(), at, 1<<40, window)
			require.NoError(t, err)
			require.Equal(t, at, span.After)
			if span.Last == span.After {
				break
			}
			for _, m := range span.Messages {
				have, sequences = append(have, m.Data), append(sequences, m.Sequence)
				require.NotEmpty(t, m.Subject)
				require.False(t, m.At.IsZero())
				require.Greater(t, m.Sequence, at)
				require.LessOrEqual(t, m.Sequence, span.Last)
			}
			at = span.Last
		}
		require.Equal(t, want, have, "%d bytes at once", window)
		require.EqualValues(t, 2, sequences[1])
		require.Greater(t, sequences[2], uint64(3), "in parts")
	}
	// A sequence within a message in parts brings the whole message.
	span, err := f.ReadStored(t.Context(), 0, 2, 1<<30)
	require.NoError(t, err)
	require.Len(t, span.Messages, 2)
	require.Greater(t, span.Last, uint64(2))
	rest, err := f.ReadStored(t.Context(), span.Last, 1<<40, 1<<30)
	require.NoError(t, err)
	require.Len(t, rest.Messages, 4)

	for range 2 {
		_, err := f.Next(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, f.Ack(t.Context(), 1, 2))
	require.NoError(t, f.Purge(t.Context(), span.Last))
	left, err := f.ReadStored(t.Context(), 0, 1<<40, 1<<30)
	require.NoError(t, err)
	require.Equal(t, span.Last, left.After, "what is purged is no part of the span")
	require.Equal(t, rest.Messages, left.Messages)
	gone, err := f.ReadStored(t.Context(), 0, 2, 1<<30)
	require.NoError(t, err)
	require.Equal(t, gone.After, gone.Last)
}

// A span is not returned where the stream has lost a message that was known, however many others it holds since.
func TestAStoredSpanOfAStreamThatLostMessagesIsRefused(t *testing.T) {
	r := streamtest.Open(t, streamtest.Conn(t))
	for sample := range 3 {
		require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(0, sample, 10, 1)))
	}
	f, err := r.Feed(t.Context(), streams.FeedOptions{})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	_, err = f.Next(t.Context())
	require.NoError(t, err)
	of, known := f.Identity(), f.Known()
	span, err := r.ReadStored(t.Context(), of, known, 0, 3, 1<<20)
	require.NoError(t, err)
	require.Len(t, span.Messages, 3)
	known.Stored = known.Stored.Add(1) // another message is there
	_, err = r.ReadStored(t.Context(), of, known, 0, 3, 1<<20)
	require.ErrorIs(t, err, streams.ErrStreamTruncated)
	_, err = r.ReadStored(t.Context(), of, streams.Mark{Sequence: 4}, 0, 3, 1<<20)
	require.ErrorIs(t, err, streams.ErrStreamTruncated)
	of.Created = of.Created.Add(1)
	_, err = r.ReadStored(t.Context(), of, streams.Mark{}, 0, 3, 1<<20)
	require.ErrorIs(t, err, streams.ErrStreamRecreated)
}
