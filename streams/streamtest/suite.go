package streamtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// patience bounds every wait of the suite, so that a case that hangs fails.
const patience = 2 * time.Minute

// Run holds a broker to the promises of package streams. Each case has a run of its own on the same target.
func Run(t *testing.T, start func(testing.TB) Target) {
	t.Helper()
	target := start(t)
	for _, c := range []struct {
		name string
		run  func(*bench)
	}{
		{"opening again changes nothing", openAgain},
		{"a foreign stream is refused by field", openForeign},
		{"attaching needs a run", testAttach},
		{"a ticket has one owner until it is done", ticketOwner},
		{"a returned ticket comes again", ticketReturn},
		{"a dead producer's ticket goes to another", ticketDead},
		{"a lease lives while its owner does", ticketHeartbeat},
		{"an unreadable ticket closes its sample", ticketMalformed},
		{"a ticket that nobody survives is closed", ticketPoisoned},
		{"outstanding tickets are bounded", ticketBound},
		{"a trajectory is stored once and read as it was", trajectoryOnce},
		{"a trajectory of 100k tokens passes", trajectoryLarge},
		{"a full stream makes its source wait", trajectoryFull},
		{"what the broker sends twice is returned once", feedOnce},
		{"a feed goes on from a position", feedFrom},
		{"a position of another stream is refused", feedRecreated},
		{"a position that the stream has lost is refused", feedTruncated},
		{"what cannot be used is rejected with its reason", feedRejects},
		{"a returned message can be rejected and replayed", feedReject},
		{"control and weights reach who follows", testFollowers},
		{"a second trainer takes the run over and fences the first", seatTaken},
		{"a trainer does not go on where another has purged", seatPurged},
		{"nothing is lost while the broker is away", testOutage},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			t.Cleanup(cancel)
			b := &bench{T: t, ctx: ctx, target: target, name: strings.ReplaceAll(c.name, " ", "-")}
			b.name = strings.Map(func(r rune) rune {
				if r == '\'' || r == ',' {
					return -1
				}
				return r
			}, b.name)
			b.conn = b.connectTarget()
			c.run(b)
		})
	}
}

// bench has the means of a case.
type bench struct {
	*testing.T
	ctx    context.Context //nolint:containedctx // of the one case
	target Target
	conn   *streams.Conn
	name   string // of the run
}

func (b *bench) connectTarget() *streams.Conn { return Connect(b.T, b.target.Connection()) }

func (b *bench) testTopology() streams.Topology {
	t := streams.DefaultTopology()
	t.Replicas = b.target.Replicas()
	t.MaxTrajectoryBytes, t.RejectedMaxBytes = 32<<20, 8<<20 // the broker sets aside as much
	return t
}

func (b *bench) openRun(change func(*streams.Topology)) *streams.Run {
	t := b.testTopology()
	if change != nil {
		change(&t)
	}
	r, err := b.conn.Open(b.ctx, b.name, t)
	require.NoError(b, err)
	return r
}

func (b *bench) newTicket(group, sample int) *schemas.Ticket {
	t := Ticket(group, sample)
	t.Run = b.name
	return t
}

func (b *bench) newTrajectory(group, tokens int) *schemas.Trajectory {
	t := Trajectory(group, 0, tokens, 3)
	t.Run = b.name
	return t
}

func (b *bench) publishGroups(r *streams.Run, groups ...int) {
	b.Helper()
	for _, g := range groups {
		require.NoError(b, r.Publish(b.ctx, b.newTrajectory(g, 100)))
	}
}

func (b *bench) openFeed(r *streams.Run, o streams.FeedOptions) *streams.Feed {
	b.Helper()
	f, err := r.Feed(b.ctx, o)
	require.NoError(b, err)
	b.Cleanup(f.Close)
	return f
}

func (b *bench) nextDelivery(f *streams.Feed) *streams.Delivery {
	b.Helper()
	d, err := f.Next(b.ctx)
	require.NoError(b, err)
	return d
}

// requireNothing checks that a feed has nothing more, after a marker published for that.
func (b *bench) requireNothing(r *streams.Run, f *streams.Feed) {
	b.Helper()
	end := Closed(999, 0)
	end.Run = b.name
	end.Producer = "end"
	require.NoError(b, r.CloseGroup(b.ctx, end))
	d := b.nextDelivery(f)
	require.NotNil(b, d.Closed, "a message came that was not to come")
	require.Equal(b, end, d.Closed)
	require.NoError(b, f.Ack(b.ctx, d.Sequence))
}

func (b *bench) openSource(r *streams.Run, o streams.TicketOptions) *streams.TicketSource {
	b.Helper()
	s, err := r.Tickets(b.ctx, o)
	require.NoError(b, err)
	b.Cleanup(s.Close)
	return s
}

func (b *bench) takeLease(s *streams.TicketSource) *streams.Lease {
	b.Helper()
	l, err := s.Take(b.ctx)
	require.NoError(b, err)
	return l
}

func (b *bench) countOutstanding(r *streams.Run) int {
	b.Helper()
	n, err := r.OutstandingTickets(b.ctx)
	require.NoError(b, err)
	return n
}

// awaitOutstanding waits for a number of outstanding tickets: a cluster removes a ticket a little after its ack.
func (b *bench) awaitOutstanding(r *streams.Run, n int) {
	b.Helper()
	require.Eventually(b, func() bool { return b.countOutstanding(r) == n }, patience, 5*time.Millisecond)
}

func (b *bench) readRejected(r *streams.Run) []*streams.RejectedMessage {
	b.Helper()
	var all []*streams.RejectedMessage
	for m, err := range r.Rejected(b.ctx) {
		require.NoError(b, err)
		all = append(all, m)
	}
	return all
}

func (b *bench) openJetStream() jetstream.JetStream {
	b.Helper()
	js, err := jetstream.New(b.conn.NATS())
	require.NoError(b, err)
	return js
}

// publishStranger publishes to the run's streams as anybody might.
func (b *bench) publishStranger(subject string, data []byte) {
	b.Helper()
	_, err := b.openJetStream().Publish(b.ctx, "weir."+b.name+"."+subject, data)
	require.NoError(b, err)
}

func openAgain(b *bench) {
	first := b.openRun(nil)
	b.publishGroups(first, 1)
	again := b.openRun(func(t *streams.Topology) { t.MaxTrajectories = 77 })
	require.Equal(b, 77, again.Topology().MaxTrajectories)
	d := b.nextDelivery(b.openFeed(again, streams.FeedOptions{}))
	require.Equal(b, b.newTrajectory(1, 100), d.Trajectory)
	attached, err := b.conn.Attach(b.ctx, b.name)
	require.NoError(b, err)
	require.Equal(b, again.Topology(), attached.Topology())
}

func openForeign(b *bench) {
	_, err := b.openJetStream().CreateStream(b.ctx, jetstream.StreamConfig{
		Name: "WEIR_" + b.name + "_TRAJECTORIES", Subjects: []string{"weir." + b.name + ".trajectories.*.*"}, Discard: jetstream.DiscardNew,
		AllowDirect: true, AllowAtomicPublish: true, Retention: jetstream.InterestPolicy, MaxMsgSize: -1, MaxMsgsPerSubject: -1,
	})
	require.NoError(b, err)
	_, err = b.conn.Open(b.ctx, b.name, b.testTopology())
	require.ErrorIs(b, err, streams.ErrIncompatible)
	require.ErrorContains(b, err, "retention: have Interest, want Limits")
}

func testAttach(b *bench) {
	_, err := b.conn.Attach(b.ctx, b.name)
	require.ErrorIs(b, err, streams.ErrNoRun)
	_, err = b.conn.Attach(b.ctx, "no.such")
	require.ErrorIs(b, err, streams.ErrName)
}

func ticketOwner(b *bench) {
	r := b.openRun(nil)
	ticket := b.newTicket(1, 0)
	require.NoError(b, r.Issue(b.ctx, ticket, ticket, b.newTicket(1, 1)))
	require.Equal(b, 2, b.countOutstanding(r))
	s := b.openSource(r, streams.TicketOptions{})
	first, second := b.takeLease(s), b.takeLease(b.openSource(r, streams.TicketOptions{}))
	require.NotEqual(b, first.Ticket.ID, second.Ticket.ID)
	if first.Ticket.Sample == 1 {
		first, second = second, first
	}
	require.Equal(b, ticket, first.Ticket)
	require.Equal(b, 1, first.Delivery)
	require.NoError(b, r.Issue(b.ctx, ticket), "leased tickets are outstanding too")
	require.Equal(b, 2, b.countOutstanding(r))
	require.NoError(b, first.Done(b.ctx))
	require.ErrorIs(b, first.Done(b.ctx), streams.ErrLeaseEnded)
	require.ErrorIs(b, first.Return(b.ctx, 0), streams.ErrLeaseEnded)
	require.NoError(b, r.Issue(b.ctx, ticket), "done within the window")
	b.awaitOutstanding(r, 1)
	require.NoError(b, second.Done(b.ctx))
	b.awaitOutstanding(r, 0)
}

func ticketReturn(b *bench) {
	r := b.openRun(nil)
	s := b.openSource(r, streams.TicketOptions{MaxLeases: 1})
	require.NoError(b, r.Issue(b.ctx, b.newTicket(1, 0)))
	require.NoError(b, b.takeLease(s).Return(b.ctx, 0))
	l := b.takeLease(s)
	require.Equal(b, 2, l.Delivery)
	require.NoError(b, l.Return(b.ctx, 50*time.Millisecond))
	l = b.takeLease(s)
	require.Equal(b, 3, l.Delivery)
	// The only lease that the source may have is open: Take waits for its end.
	short, cancel := context.WithTimeout(b.ctx, 50*time.Millisecond)
	defer cancel()
	_, err := s.Take(short)
	require.ErrorIs(b, err, context.DeadlineExceeded)
	require.NoError(b, l.Done(b.ctx))
}

func ticketDead(b *bench) {
	r := b.openRun(func(t *streams.Topology) { t.Lease = time.Second })
	require.NoError(b, r.Issue(b.ctx, b.newTicket(1, 0)))
	other := b.connectTarget()
	doomed, err := other.Attach(b.ctx, b.name)
	require.NoError(b, err)
	lost := b.takeLease(b.openSource(doomed, streams.TicketOptions{}))
	other.NATS().Close()
	l := b.takeLease(b.openSource(r, streams.TicketOptions{}))
	require.Equal(b, lost.Ticket, l.Ticket)
	require.Greater(b, l.Delivery, lost.Delivery)
	select {
	case <-lost.Lost():
	case <-b.ctx.Done():
		require.Fail(b, "the lease is not known to be lost")
	}
	require.NoError(b, l.Done(b.ctx))
	b.awaitOutstanding(r, 0)
}

func ticketHeartbeat(b *bench) {
	r := b.openRun(func(t *streams.Topology) { t.Lease = 6 * time.Second })
	require.NoError(b, r.Issue(b.ctx, b.newTicket(1, 0)))
	l := b.takeLease(b.openSource(r, streams.TicketOptions{}))
	other, cancel := context.WithTimeout(b.ctx, 9*time.Second)
	defer cancel()
	_, err := b.openSource(r, streams.TicketOptions{}).Take(other)
	require.ErrorIs(b, err, context.DeadlineExceeded, "nobody else gets it")
	select {
	case <-l.Lost():
		require.Fail(b, "the lease is lost although its owner lives")
	default:
	}
	require.NoError(b, l.Done(b.ctx))
}

func ticketMalformed(b *bench) {
	r := b.openRun(nil)
	b.publishStranger("tickets.echo.g4-0.2", []byte("garbage"))
	foreign := b.newTicket(5, 0)
	foreign.Run = "another"
	data, err := schemas.Marshal(foreign)
	require.NoError(b, err)
	b.publishStranger("tickets.echo.g5-0.0", data)
	require.NoError(b, r.Issue(b.ctx, b.newTicket(6, 0)))
	l := b.takeLease(b.openSource(r, streams.TicketOptions{Producer: "p9"}))
	require.Equal(b, "g6-0-0", l.Ticket.ID)
	require.NoError(b, l.Done(b.ctx))
	b.awaitOutstanding(r, 0)
	rejected := b.readRejected(r)
	require.Len(b, rejected, 2)
	require.Equal(b, schemas.ReasonMalformed, rejected[0].Reason)
	require.Equal(b, []byte("garbage"), rejected[0].Data)
	require.Equal(b, "weir."+b.name+".tickets.echo.g4-0.2", rejected[0].Subject)
	require.Equal(b, schemas.ReasonForeign, rejected[1].Reason)
	f := b.openFeed(r, streams.FeedOptions{})
	closed := b.nextDelivery(f).Closed
	require.Equal(b, "g4-0", closed.Group)
	require.Equal(b, []int{2}, closed.Cancelled)
	require.Equal(b, "p9", closed.Producer)
	require.Equal(b, "g5-0", b.nextDelivery(f).Closed.Group)
}

func ticketPoisoned(b *bench) {
	r := b.openRun(func(t *streams.Topology) { t.MaxDeliver = 2 })
	require.NoError(b, r.Issue(b.ctx, b.newTicket(1, 7)))
	s := b.openSource(r, streams.TicketOptions{})
	for range 2 {
		require.NoError(b, b.takeLease(s).Return(b.ctx, 0))
	}
	require.NoError(b, r.Issue(b.ctx, b.newTicket(2, 0)))
	l := b.takeLease(s)
	require.Equal(b, "g2-0-0", l.Ticket.ID)
	require.NoError(b, l.Done(b.ctx))
	closed := b.nextDelivery(b.openFeed(r, streams.FeedOptions{})).Closed
	require.Equal(b, "g1-0", closed.Group)
	require.Equal(b, []int{7}, closed.Cancelled)
	rejected := b.readRejected(r)
	require.Len(b, rejected, 1)
	require.Equal(b, schemas.ReasonPoisoned, rejected[0].Reason)
}

func ticketBound(b *bench) {
	r := b.openRun(func(t *streams.Topology) { t.MaxTickets = 2 })
	require.NoError(b, r.Issue(b.ctx, b.newTicket(1, 0), b.newTicket(1, 1)))
	short, cancel := context.WithTimeout(b.ctx, 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(b, r.Issue(short, b.newTicket(1, 2)), context.DeadlineExceeded)
	issued := make(chan error, 1)
	go func() { issued <- r.Issue(b.ctx, b.newTicket(1, 3)) }()
	require.NoError(b, b.takeLease(b.openSource(r, streams.TicketOptions{})).Done(b.ctx))
	require.NoError(b, <-issued)
	require.Equal(b, 2, b.countOutstanding(r))
}

func testFollowers(b *bench) {
	r := b.openRun(nil)
	stop := errors.New("seen")
	_, err := r.LatestManifest(b.ctx)
	require.ErrorIs(b, err, streams.ErrNoWeights)
	manifest, shards := Weights(b.name, 0, []byte("weights"))
	require.NoError(b, PublishWeights(b.ctx, r, manifest, shards))
	var got *schemas.Manifest
	require.ErrorIs(b, r.FollowWeights(b.ctx, func(m *schemas.Manifest) error {
		got = m
		return stop
	}), stop)
	require.Equal(b, int64(0), got.Version)
	data, err := Shard(b.ctx, r, got.Shards[0])
	require.NoError(b, err)
	require.Equal(b, []byte("weights"), data)

	want := &schemas.Control{Run: b.name, Eta: 2, Depth: 1, At: time.Unix(5, 0).UTC()}
	require.NoError(b, r.UpdateControl(b.ctx, func(*schemas.Control) *schemas.Control { return want }))
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	require.NoError(b, r.FollowControl(ctx, func(c *schemas.Control) {
		require.Equal(b, want, c)
		cancel()
	}))
}
