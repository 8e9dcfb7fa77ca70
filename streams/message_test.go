package streams_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// "What an operator misses" of the second review of operating, 4: one message of a stream was to be had by the raw API alone.
func TestOneStoredMessage(t *testing.T) {
	config := streamtest.Config(t)
	config.MaxPayload = 64 << 10
	run := streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{Broker: streamtest.StartIn(t, config)}))
	ticket := streamtest.Ticket(3, 1)
	require.NoError(t, run.Issue(t.Context(), ticket))
	small, large := streamtest.Trajectory(3, 1, 8, 0), streamtest.Trajectory(4, 0, 1<<15, 0)
	require.NoError(t, run.Publish(t.Context(), small))
	require.NoError(t, run.Publish(t.Context(), large))
	require.NoError(t, run.NATS().Publish("weir.test.trajectories.0.stranger", []byte("what is this?")))
	require.NoError(t, run.NATS().Flush())

	m, err := run.StoredMessage(t.Context(), "tickets", 1)
	require.NoError(t, err)
	require.Equal(t, "TICKETS", m.Stream)
	require.Equal(t, "weir.test.tickets.echo.g3-0.1", m.Subject)
	require.Equal(t, []string{ticket.ID}, m.Header["Nats-Msg-Id"])
	require.NotContains(t, m.Header, "Nats-Sequence")
	require.False(t, m.At.IsZero())
	decoded, err := m.Decode()
	require.NoError(t, err)
	require.Equal(t, ticket, decoded)

	m, err = run.StoredMessage(t.Context(), "TRAJECTORIES", 1)
	require.NoError(t, err)
	decoded, err = m.Decode()
	require.NoError(t, err)
	require.Equal(t, small, decoded)

	// Each part shows the message that it is a part of.
	infos, err := run.StreamInfos(t.Context())
	require.NoError(t, err)
	last := infos[1].Last
	require.Greater(t, last, uint64(4))
	for sequence := uint64(2); sequence < last; sequence++ {
		m, err = run.StoredMessage(t.Context(), "TRAJECTORIES", sequence)
		require.NoError(t, err)
		require.Less(t, len(m.Data), len(m.Whole))
		decoded, err = m.Decode()
		require.NoError(t, err)
		require.Equal(t, large, decoded)
	}

	m, err = run.StoredMessage(t.Context(), "TRAJECTORIES", last)
	require.NoError(t, err)
	require.Equal(t, "what is this?", string(m.Data))
	_, err = m.Decode()
	require.ErrorIs(t, err, schemas.ErrMalformed)

	for _, sequence := range []uint64{0, last + 1} {
		_, err = run.StoredMessage(t.Context(), "TRAJECTORIES", sequence)
		require.ErrorIs(t, err, streams.ErrNoMessage)
	}
	_, err = run.StoredMessage(t.Context(), "NONE", 1)
	require.ErrorIs(t, err, streams.ErrName)
	require.ErrorContains(t, err, "TICKETS, TRAJECTORIES")
}

// Of a message whose other parts are gone, the part is shown and not decoded.
func TestAPartWithoutItsMessageIsShown(t *testing.T) {
	config := streamtest.Config(t)
	config.MaxPayload = 64 << 10
	run := streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{Broker: streamtest.StartIn(t, config)}))
	require.NoError(t, run.Publish(t.Context(), streamtest.Trajectory(4, 0, 1<<15, 0)))
	js, err := jetstream.New(run.NATS())
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), "WEIR_test_TRAJECTORIES")
	require.NoError(t, err)
	require.NoError(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(2)))
	m, err := run.StoredMessage(t.Context(), "TRAJECTORIES", 2)
	require.NoError(t, err)
	require.Nil(t, m.Whole)
	_, err = m.Decode()
	require.ErrorIs(t, err, schemas.ErrMalformed)
	require.ErrorContains(t, err, "part 2/")
}
