package streams_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// far is a run over a line that takes delay each way, and the same run without the line. Leases are long: a ticket that is leased
// to nobody does not come back within a test.
func far(t *testing.T, delay time.Duration) (distant, near *streams.Run) {
	t.Helper()
	b := streamtest.Start(t)
	near = openWithLease(t, streamtest.Connect(t, streams.ConnectConfig{Broker: b}), 10*time.Minute)
	line := streamtest.Line(t, streamtest.Address(t, b), delay)
	distant, err := streamtest.Connect(t, streams.ConnectConfig{URL: "nats://" + line}).Attach(t.Context(), "test")
	require.NoError(t, err)
	return distant, near
}

// tickets are n tickets, others for each round.
func tickets(round, n int) (all []*schemas.Ticket) {
	for i := range n {
		all = append(all, streamtest.Ticket(1000*round+i, 0))
	}
	return all
}

// A producer with one free slot holds one ticket; the others are another's at once, and were delivered to nobody before.
func TestASourceHoldsNoMoreTicketsThanItHasFreeSlots(t *testing.T) {
	t.Parallel()
	distant, near := far(t, 5*time.Millisecond)
	narrow, err := distant.Tickets(t.Context(), streams.TicketOptions{MaxLeases: 1})
	require.NoError(t, err)
	t.Cleanup(narrow.Close)
	wide, err := near.Tickets(t.Context(), streams.TicketOptions{})
	require.NoError(t, err)
	t.Cleanup(wide.Close)
	const n = 20
	// Many wait for the one slot before there is a ticket.
	waiting, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var takers errgroup.Group
	held := make(chan *streams.Lease, n)
	for range n {
		takers.Go(func() error {
			if l, err := narrow.Take(waiting); err == nil {
				held <- l
			}
			return nil
		})
	}
	require.NoError(t, near.Issue(t.Context(), tickets(1, n)...))
	leases := []*streams.Lease{<-held}
	for range n - 1 {
		l, err := wide.Take(within(t))
		require.NoError(t, err)
		leases = append(leases, l)
	}
	giveUp()
	require.NoError(t, takers.Wait())
	require.Empty(t, held, "it has one slot")
	for _, l := range leases {
		require.Equal(t, 1, l.Delivery)
		require.NoError(t, l.Done(within(t)))
	}
}

// Takers that give up, or a source that is closed, while tickets are on their way to them: the tickets are another's at once, and
// no delivery of theirs counts.
func TestTicketsOnTheirWayToTakersWhoGaveUpGoToOthers(t *testing.T) {
	t.Parallel()
	distant, near := far(t, 20*time.Millisecond)
	other, err := near.Tickets(t.Context(), streams.TicketOptions{})
	require.NoError(t, err)
	t.Cleanup(other.Close)
	const n = 40
	for round := range 4 {
		source, err := distant.Tickets(t.Context(), streams.TicketOptions{})
		require.NoError(t, err)
		ctx, giveUp := context.WithCancel(t.Context())
		var takers errgroup.Group
		taken := make(chan *streams.Lease, n)
		for range n {
			takers.Go(func() error {
				if l, err := source.Take(ctx); err == nil {
					taken <- l
				}
				return nil
			})
		}
		require.NoError(t, near.Issue(t.Context(), tickets(round, n)...))
		leases := []*streams.Lease{<-taken} // the others are on their way
		if round%2 == 0 {
			giveUp()
		} else {
			source.Close()
		}
		require.NoError(t, takers.Wait())
		giveUp()
		close(taken)
		for l := range taken {
			leases = append(leases, l)
		}
		t.Log("came before the end:", len(leases))
		for range n - len(leases) {
			l, err := other.Take(within(t))
			require.NoError(t, err)
			require.Equal(t, 1, l.Delivery)
			require.NoError(t, l.Done(within(t)))
		}
		for _, l := range leases {
			_ = l.Done(within(t))
		}
		source.Close()
	}
}

// Some sources with takers that come, work, give up and come again: each ticket has one owner at a time and is done once, however
// often it was given back its delivery is the first, no source holds more than its slots, and in the end nothing is left.
func TestSourcesDoWhatOneNaiveQueueWould(t *testing.T) {
	t.Parallel()
	delay := 3 * time.Millisecond
	b := streamtest.Start(t)
	conn := streamtest.Connect(t, streams.ConnectConfig{Broker: b})
	line := streamtest.Connect(t, streams.ConnectConfig{URL: "nats://" + streamtest.Line(t, streamtest.Address(t, b), delay)})
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		if runs == 8 {
			return // each check opens a run on a broker
		}
		runs++
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		topology := streams.DefaultTopology()
		topology.MaxTrajectoryBytes, topology.RejectedMaxBytes, topology.Lease = 1<<20, 1<<20, 10*time.Minute
		name := fmt.Sprint("queue", runs)
		near, err := conn.Open(ctx, name, topology)
		require.NoError(rt, err)
		distant, err := line.Attach(ctx, name)
		require.NoError(rt, err)
		n := rapid.IntRange(1, 150).Draw(rt, "tickets")
		all := tickets(runs, n)
		for _, ticket := range all {
			ticket.Run = name
		}
		var mu sync.Mutex
		owner := map[string]int{}
		done := map[string]int{}
		finished, finish := context.WithCancel(ctx)
		defer finish()
		work, ctx := errgroup.WithContext(ctx)
		for s := range rapid.IntRange(1, 3).Draw(rt, "sources") {
			run := near
			if rapid.Bool().Draw(rt, "far") {
				run = distant
			}
			slots := rapid.IntRange(1, 100).Draw(rt, "slots")
			patience := time.Duration(rapid.IntRange(1, 60).Draw(rt, "patience in ms")) * time.Millisecond
			returns := rapid.IntRange(2, 9).Draw(rt, "one in so many is given back")
			source, err := run.Tickets(ctx, streams.TicketOptions{MaxLeases: slots})
			require.NoError(rt, err)
			defer source.Close()
			held, turn := 0, 0
			for range slots + 5 {
				work.Go(func() error {
					for patience := patience; finished.Err() == nil; {
						short, giveUp := context.WithTimeout(finished, patience)
						l, err := source.Take(short)
						giveUp()
						if err != nil {
							patience *= 2 // on a loaded machine some answers take long
							continue
						}
						mu.Lock()
						if o := owner[l.Ticket.ID]; o != 0 || l.Delivery != 1 || done[l.Ticket.ID] > 0 || held >= slots {
							mu.Unlock()
							return fmt.Errorf("ticket %s: delivery %d, with source %d and done %d times; source %d holds %d of %d",
								l.Ticket.ID, l.Delivery, o, done[l.Ticket.ID], s+1, held, slots)
						}
						owner[l.Ticket.ID] = s + 1
						held++
						turn++
						back := turn%returns == 0
						mu.Unlock()
						mu.Lock()
						delete(owner, l.Ticket.ID)
						held--
						if !back {
							done[l.Ticket.ID]++
							if len(done) == n {
								finish()
							}
						}
						mu.Unlock()
						if back {
							err = l.Release(ctx, 0)
						} else {
							err = l.Done(ctx)
						}
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
		}
		require.NoError(rt, near.Issue(ctx, all...))
		require.NoError(rt, work.Wait())
		require.Len(rt, done, n)
		left, err := near.OutstandingTickets(t.Context())
		require.NoError(rt, err)
		require.Zero(rt, left)
	})
}
