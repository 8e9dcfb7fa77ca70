package streams_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

func TestTicketToTrajectoryAndBack(t *testing.T) {
	r := streamtest.Open(t, streamtest.Conn(t))
	ctx := t.Context()
	require.NoError(t, r.Issue(ctx, streamtest.Ticket(0, 0), streamtest.Ticket(0, 1), streamtest.Ticket(0, 0)))
	n, err := r.OutstandingTickets(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	s, err := r.Tickets(ctx, streams.TicketOptions{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	f, err := r.Feed(ctx, streams.FeedOptions{})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	for i := range 2 {
		l, err := s.Take(ctx)
		require.NoError(t, err)
		want := streamtest.Trajectory(0, l.Ticket.Sample, 100, 3)
		require.NoError(t, r.Publish(ctx, want))
		require.NoError(t, l.Done(ctx))
		d, err := f.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, want, d.Trajectory)
		require.Equal(t, uint64(i+1), d.Sequence)
		require.NoError(t, f.Ack(ctx, d.Sequence))
	}
	require.NoError(t, f.Purge(ctx, 2))
}
