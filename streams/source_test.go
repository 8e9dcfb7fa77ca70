package streams_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// As many takers as tickets, all at once: none waits for a ticket that another taker's request brought.
func TestEveryTakerGetsATicket(t *testing.T) {
	r := streamtest.Open(t, streamtest.Conn(t))
	source, err := r.Tickets(t.Context(), streams.TicketOptions{})
	require.NoError(t, err)
	t.Cleanup(source.Close)
	const takers = 32
	work, ctx := errgroup.WithContext(t.Context())
	taken := make(chan string, takers)
	for range takers {
		work.Go(func() error {
			lease, err := source.Take(ctx)
			if err != nil {
				return err
			}
			taken <- lease.Ticket.ID
			return lease.Done(ctx)
		})
	}
	var tickets []*schemas.Ticket
	want := map[string]bool{}
	for i := range takers {
		tickets = append(tickets, streamtest.Ticket(i, 0))
		want[tickets[i].ID] = true
	}
	require.NoError(t, r.Issue(t.Context(), tickets...))
	require.NoError(t, work.Wait())
	for range takers {
		delete(want, <-taken)
	}
	require.Empty(t, want, "each ticket has gone to a taker")
}
