package streams_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
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

// A taker that gives up while it is looked up how often its ticket was released left the ticket leased to nobody.
func TestATicketWhoseTakerGivesUpIsHandedOutAgain(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	r := openWithLease(t, conn, 10*time.Minute)
	source, err := r.Tickets(t.Context(), streams.TicketOptions{})
	require.NoError(t, err)
	t.Cleanup(source.Close)
	require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(1, 0)))
	lease, err := source.Take(within(t))
	require.NoError(t, err)
	require.NoError(t, lease.Return(t.Context(), 0))

	hasty, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	_, err = conn.NATS().Subscribe("$JS.API.STREAM.INFO.KV_WEIR_test_RELEASED", func(*nats.Msg) { giveUp() })
	require.NoError(t, err)
	require.NoError(t, conn.NATS().Flush())
	if lease, err = source.Take(hasty); err == nil { // it was faster
		require.NoError(t, lease.Release(t.Context(), 0))
	}
	lease, err = source.Take(within(t))
	require.NoError(t, err)
	require.Equal(t, 2, lease.Delivery, "the hasty taker's does not count")
	require.NoError(t, lease.Done(within(t)))
}

// A source that nobody waits at any more takes no ticket: it would be leased to nobody until its lease lapses.
func TestASourceWhoseTakersGaveUpTakesNoTicket(t *testing.T) {
	t.Parallel()
	r := openWithLease(t, streamtest.Conn(t), 10*time.Minute)
	left, err := r.Tickets(t.Context(), streams.TicketOptions{})
	require.NoError(t, err)
	t.Cleanup(left.Close)
	other, err := r.Tickets(t.Context(), streams.TicketOptions{})
	require.NoError(t, err)
	t.Cleanup(other.Close)
	for i := range 3 {
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err = left.Take(short)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(i, 0)))
		lease, err := other.Take(within(t))
		require.NoError(t, err)
		require.Equal(t, 1, lease.Delivery)
		require.NoError(t, lease.Done(within(t)))
	}
}
