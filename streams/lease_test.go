package streams_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

// lasting is a broker that can be stopped and started again, with its store or without.
type lasting struct {
	config broker.Config
	broker *broker.Broker
}

func newLasting(t *testing.T) *lasting {
	t.Helper()
	l := &lasting{config: streamtest.Config(t)}
	l.config.Listen = streamtest.FreeAddress(t)
	l.start(t)
	t.Cleanup(func() { l.broker.Shutdown() })
	return l
}

func (l *lasting) start(t *testing.T) {
	t.Helper()
	var err error
	l.broker, err = broker.Start(t.Context(), l.config, streamtest.Log(t))
	require.NoError(t, err)
}

// lose stops the broker and starts it again with an empty store.
func (l *lasting) lose(t *testing.T) {
	t.Helper()
	l.broker.Shutdown()
	l.config.StoreDir = t.TempDir()
	l.start(t)
}

// copy stops the broker, copies its store and starts it again.
func (l *lasting) copy(t *testing.T, to string) {
	t.Helper()
	l.broker.Shutdown()
	require.NoError(t, os.CopyFS(to, os.DirFS(l.config.StoreDir)))
	l.start(t)
}

// comeBackWith stops the broker and starts it again with another store.
func (l *lasting) comeBackWith(t *testing.T, store string) {
	t.Helper()
	l.broker.Shutdown()
	l.config.StoreDir = store
	l.start(t)
}

func (l *lasting) connect(t *testing.T) *streams.Conn {
	t.Helper()
	return streamtest.Connect(t, streams.ConnectConfig{URL: "nats://" + l.config.Listen})
}

func openWithLease(t *testing.T, c *streams.Conn, lease time.Duration) *streams.Run {
	t.Helper()
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes, topology.Lease = 64<<20, 8<<20, lease
	r, err := c.Open(t.Context(), "test", topology)
	require.NoError(t, err)
	return r
}

// within ends a call that would hang.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Defect P1: a lease that was lost while the broker was away kept its slot, and the source handed out nothing ever after.
func TestALostLeaseFreesItsSlotOnce(t *testing.T) {
	b := newLasting(t)
	// As long as that a loaded machine renews the second lease in time.
	r := openWithLease(t, b.connect(t), 4*time.Second)
	require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(1, 0)))
	s, err := r.Tickets(t.Context(), streams.TicketOptions{MaxLeases: 1})
	require.NoError(t, err)
	defer s.Close()
	lost, err := s.Take(within(t))
	require.NoError(t, err)
	b.broker.Shutdown()
	<-lost.Lost()
	b.start(t)
	again, err := s.Take(within(t))
	require.NoError(t, err)
	require.Equal(t, lost.Ticket, again.Ticket)
	require.NoError(t, lost.Return(t.Context(), 0), "the ticket is not its to give back")
	// The word of the lost lease ends the ticket, whoever has it, and leaves the slot of the other alone.
	require.NoError(t, lost.Done(within(t)))
	require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(2, 0)))
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = s.Take(short)
	require.ErrorIs(t, err, context.DeadlineExceeded, "one lease is open")
	require.NoError(t, again.Done(within(t)))
	next, err := s.Take(within(t))
	require.NoError(t, err)
	require.Equal(t, "g2-0-0", next.Ticket.ID)
	require.NoError(t, next.Done(within(t)))
}

// Defects P1 and F1: where the broker's store was lost and made again, leases that could not be ended kept their slots. A
// word on an old ticket must not end the new one that has its place in the stream.
func TestTheSourceGoesOnWithTicketsMadeAnew(t *testing.T) {
	b := newLasting(t)
	conn := b.connect(t)
	r := openWithLease(t, conn, time.Minute)
	require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(1, 0), streamtest.Ticket(1, 1)))
	s, err := r.Tickets(t.Context(), streams.TicketOptions{MaxLeases: 2})
	require.NoError(t, err)
	defer s.Close()
	var old []*streams.Lease
	for range 2 {
		l, err := s.Take(within(t))
		require.NoError(t, err)
		old = append(old, l)
	}
	b.lose(t)
	r = openWithLease(t, conn, time.Minute)
	require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(7, 0), streamtest.Ticket(7, 1)))
	// Another producer has the new tickets, under the sequences of the old ones.
	other, err := r.Tickets(t.Context(), streams.TicketOptions{})
	require.NoError(t, err)
	defer other.Close()
	var fresh []*streams.Lease
	for range 2 {
		l, err := other.Take(within(t))
		require.NoError(t, err)
		fresh = append(fresh, l)
	}
	require.ErrorIs(t, old[0].Done(within(t)), streams.ErrStreamRecreated)
	require.ErrorIs(t, old[1].Return(within(t), 0), streams.ErrStreamRecreated)
	n, err := r.OutstandingTickets(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(8, 0), streamtest.Ticket(8, 1)))
	for range 2 {
		l, err := s.Take(within(t))
		require.NoError(t, err)
		require.Equal(t, "g8-0", l.Ticket.Group)
		fresh = append(fresh, l)
	}
	for _, l := range fresh {
		require.NoError(t, l.Done(within(t)))
	}
	n, err = r.OutstandingTickets(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
}

// Defect S14: each producer that drained cost a ticket a delivery, until its sample was closed though nothing of it had failed.
func TestATicketThatIsReleasedHasNotFailed(t *testing.T) {
	conn := streamtest.Conn(t)
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes, topology.MaxDeliver = 64<<20, 8<<20, 2
	r, err := conn.Open(t.Context(), "test", topology)
	require.NoError(t, err)
	require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(1, 4)))
	take := func() *streams.Lease {
		t.Helper()
		// Each time another producer.
		s, err := r.Tickets(t.Context(), streams.TicketOptions{})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		l, err := s.Take(within(t))
		require.NoError(t, err)
		return l
	}
	release := func(times, delivery int) {
		for range times {
			l := take()
			require.Equal(t, "g1-0-4", l.Ticket.ID)
			require.Equal(t, delivery, l.Delivery)
			require.NoError(t, l.Release(t.Context(), 0))
			require.ErrorIs(t, l.Release(t.Context(), 0), streams.ErrLeaseEnded)
		}
	}
	release(4, 1)
	require.NoError(t, take().Return(t.Context(), 0))
	release(3, 2)
	require.NoError(t, take().Return(t.Context(), 0))
	// It has failed twice now: it is closed, and the next one comes.
	require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(2, 0)))
	require.Equal(t, "g2-0-0", take().Ticket.ID)
	f, err := r.Feed(t.Context(), streams.FeedOptions{})
	require.NoError(t, err)
	defer f.Close()
	d, err := f.Next(within(t))
	require.NoError(t, err)
	require.Equal(t, []int{4}, d.Closed.Cancelled)
}

// A lease that has ended leaves its ticket alone: nothing of it runs on.
func TestAnEndedLeaseIsNotRenewed(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	r := openWithLease(t, conn, time.Second)
	require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(1, 0)))
	s, err := r.Tickets(t.Context(), streams.TicketOptions{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	lease, err := s.Take(within(t))
	require.NoError(t, err)
	words, err := conn.NATS().SubscribeSync("$JS.ACK.>")
	require.NoError(t, err)
	renewed, err := words.NextMsg(time.Minute)
	require.NoError(t, err)
	require.Equal(t, "+WPI", string(renewed.Data))
	require.NoError(t, lease.Done(within(t)))
	for err == nil { // up to the word that ended it
		var last *nats.Msg
		if last, err = words.NextMsg(time.Minute); err == nil && string(last.Data) == "+ACK" {
			break
		}
	}
	require.NoError(t, err)
	_, err = words.NextMsg(1500 * time.Millisecond) // four renewals long
	require.ErrorIs(t, err, nats.ErrTimeout)
}
