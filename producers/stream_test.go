package producers_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Two producers on a real broker: every ticket issued gives one trajectory, and none is left over.
func TestProducersOnABroker(t *testing.T) {
	run := streamtest.Open(t, streamtest.Conn(t))
	const n = 24
	want := map[string]bool{}
	for i := range n {
		ticket := streamtest.Ticket(i, 0)
		like := newTicket(i)
		ticket.Prompt, ticket.Limits, ticket.Sampling = like.Prompt, like.Limits, like.Sampling
		want[ticket.ID] = true
		require.NoError(t, run.Issue(t.Context(), ticket))
	}
	feed, err := run.Feed(t.Context(), streams.FeedOptions{})
	require.NoError(t, err)
	t.Cleanup(feed.Close)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for i := range 2 {
		cfg := config()
		cfg.Name = fmt.Sprintf("p%d", i)
		source, err := run.Tickets(context.Background(), streams.TicketOptions{Producer: cfg.Name, MaxLeases: cfg.Concurrency})
		require.NoError(t, err)
		t.Cleanup(source.Close)
		env := newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines})
		go func() {
			ended <- producers.Run(ctx, cfg, producers.Deps{
				Stream: producers.OnRun(run, source), Environments: map[string]producers.Environment{"echo": env},
			})
		}()
	}
	for range n {
		d, err := feed.Next(t.Context())
		require.NoError(t, err)
		require.True(t, want[d.Trajectory.ID], d.Trajectory.ID)
		delete(want, d.Trajectory.ID)
		require.Equal(t, schemas.StopAnswer, d.Trajectory.Stop)
		require.NoError(t, feed.Ack(t.Context(), d.Sequence))
	}
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	left, err := run.OutstandingTickets(t.Context())
	require.NoError(t, err)
	require.Zero(t, left)
}
