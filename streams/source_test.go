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
	for range takers {
		work.Go(func() error {
			lease, err := source.Take(ctx)
			if err != nil {
				return err
			}
			return lease.Done(ctx)
		})
	}
	var tickets []*schemas.Ticket
	for i := range takers {
		tickets = append(tickets, streamtest.Ticket(i, 0))
	}
	require.NoError(t, r.Issue(t.Context(), tickets...))
	require.NoError(t, work.Wait())
}
