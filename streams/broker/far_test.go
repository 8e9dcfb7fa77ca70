package broker_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// far is a run of a role over a line that takes 10 ms each way.
func (l *locked) far(t *testing.T, role streams.Role) *streams.Run {
	t.Helper()
	c := streamtest.Connect(t, streams.ConnectConfig{
		URL:  "nats://" + streamtest.Line(t, streamtest.Address(t, l.broker), 10*time.Millisecond),
		Role: role, SeedFile: filepath.Join(l.config.KeysDir, string(role)+".seed"),
	})
	r, err := c.Attach(t.Context(), "test")
	require.NoError(t, err)
	return r
}

// With a producer's key, from an account of its own: what is on its way to takers who gave up is given back, and its delivery does
// not count.
func TestAProducersKeyGivesBackWhatItNoLongerWants(t *testing.T) {
	l := lockedBroker(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const n = 40
	source, err := l.far(t, streams.RoleProducer).Tickets(ctx, streams.TicketOptions{})
	require.NoError(t, err)
	waiting, giveUp := context.WithCancel(ctx)
	var takers errgroup.Group
	taken := make(chan *streams.Lease, n)
	for range n {
		takers.Go(func() error {
			if lease, err := source.Take(waiting); err == nil {
				taken <- lease
			}
			return nil
		})
	}
	var tickets []*schemas.Ticket
	for i := range n {
		tickets = append(tickets, streamtest.Ticket(i, 0))
	}
	require.NoError(t, l.as(t, streams.RoleTrainer).Issue(ctx, tickets...))
	require.NoError(t, (<-taken).Done(ctx)) // the others are on their way
	giveUp()
	require.NoError(t, takers.Wait())
	close(taken)
	ended := 1
	for lease := range taken {
		require.NoError(t, lease.Done(ctx))
		ended++
	}
	source.Close()
	other, err := l.as(t, streams.RoleProducer).Tickets(ctx, streams.TicketOptions{})
	require.NoError(t, err)
	defer other.Close()
	for ; ended < n; ended++ {
		lease, err := other.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, lease.Delivery)
		require.NoError(t, lease.Done(ctx))
	}
}

// With a producer's key: parts go several at once, and a producer that a full stream refuses may look at its state.
func TestAProducersKeySendsPartsAndLooksAtAFullStream(t *testing.T) {
	config := streamtest.Config(t)
	config.MaxPayload = 128 << 10
	l := lockedWith(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	topology := streams.DefaultTopology()
	topology.MaxTrajectories, topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 20, 256<<20, 32<<20
	admin := l.connect(t, streams.RoleAdmin)
	_, err := admin.Open(ctx, "test", topology)
	require.NoError(t, err)
	large := streamtest.Trajectory(1, 0, 100, 0)
	large.Answer = strings.Repeat("x", int(admin.NATS().MaxPayload())*12)
	producer := l.far(t, streams.RoleProducer)
	require.NoError(t, producer.Publish(ctx, large))

	looks, err := admin.NATS().SubscribeSync("$JS.API.STREAM.INFO.WEIR_test_TRAJECTORIES")
	require.NoError(t, err)
	require.NoError(t, admin.NATS().Flush())
	again := *large
	again.Producer = "p2" // another trajectory of that size, for which there is no room
	stored := make(chan error, 1)
	go func() { stored <- producer.Publish(ctx, &again) }()
	for range 2 {
		_, err = looks.NextMsg(time.Minute)
		require.NoError(t, err)
	}
	feed, err := l.as(t, streams.RoleTrainer).Feed(ctx, streams.FeedOptions{})
	require.NoError(t, err)
	defer feed.Close()
	const parts = 13
	for i, want := range []string{"p1", "p2"} {
		d, err := feed.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, want, d.Trajectory.Producer)
		require.Equal(t, large.Answer, d.Trajectory.Answer)
		require.Equal(t, uint64(1+i*parts), d.Sequence)
		require.NoError(t, feed.Ack(ctx, d.Sequence))
		require.NoError(t, feed.Purge(ctx, d.Sequence+parts-1))
	}
	require.NoError(t, <-stored)
}
