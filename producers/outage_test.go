package producers_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/streamtest"
)

// outage is a producer on a broker that goes away, wired as internal/cli does it.
type outage struct {
	*testing.T
	config broker.Config
	broker *broker.Broker
	conn   *streams.Conn
	run    *streams.Run
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{T: t, config: streamtest.Config(t)}
	o.config.Listen = streamtest.FreeAddress(t)
	o.start()
	t.Cleanup(func() { o.broker.Shutdown() })
	o.conn = streamtest.Connect(t, streams.ConnectConfig{URL: "nats://" + o.config.Listen})
	o.open()
	return o
}

func (o *outage) start() {
	var err error
	o.broker, err = broker.Start(o.Context(), o.config, slog.New(slog.DiscardHandler))
	require.NoError(o, err)
}

func (o *outage) open() {
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes, topology.Lease = 64<<20, 8<<20, 3*time.Second
	var err error
	o.run, err = o.conn.Open(o.Context(), "test", topology)
	require.NoError(o, err)
}

// issue issues a ticket a group, and returns their ids.
func (o *outage) issue(groups ...int) (ids []string) {
	for _, g := range groups {
		ticket, like := streamtest.Ticket(g, 0), newTicket(g)
		ticket.Prompt, ticket.Limits, ticket.Sampling = like.Prompt, like.Limits, like.Sampling
		ids = append(ids, ticket.ID)
		require.NoError(o, o.run.Issue(o.Context(), ticket))
	}
	return ids
}

// produce runs a producer of so many episodes at once until the test ends.
func (o *outage) produce(concurrency int, policy producers.Policy) {
	cfg := config()
	cfg.Name, cfg.Concurrency = "p", concurrency
	source, err := o.run.Tickets(context.Background(), streams.TicketOptions{Producer: cfg.Name, MaxLeases: cfg.Concurrency})
	require.NoError(o, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- producers.Run(ctx, cfg, producers.Deps{
			Stream: producers.OnRun(o.run, source), Environments: map[string]producers.Environment{"echo": newEnvironment(o.T, policy)},
		})
	}()
	o.Cleanup(func() {
		cancel()
		require.NoError(o, <-ended)
		source.Close()
	})
}

// stored reads trajectories until the last of want has come, and returns how often each came.
func (o *outage) stored(want []string) map[string]int {
	ctx, cancel := context.WithTimeout(o.Context(), time.Minute)
	defer cancel()
	feed, err := o.run.Feed(ctx, streams.FeedOptions{})
	require.NoError(o, err)
	defer feed.Close()
	seen := map[string]int{}
	for {
		missing := false
		for _, id := range want {
			missing = missing || seen[id] == 0
		}
		if !missing {
			return seen
		}
		d, err := feed.Next(ctx)
		require.NoError(o, err, "of %v there are %v", want, seen)
		require.NotNil(o, d.Trajectory)
		seen[d.Trajectory.ID]++
	}
}

// Defects P1 and F1: every outage that outlasted the leases cost a producer as many slots as it had episodes, until it took
// nothing ever after.
func TestAProducerTakesTicketsAgainAfterAnOutageLongerThanItsLeases(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("store lost: %v", lost), func(t *testing.T) { testOutage(t, lost) })
	}
}

func testOutage(t *testing.T, storeLost bool) {
	o := newOutage(t)
	var away atomic.Bool
	away.Store(true)
	reached, cut := make(chan struct{}, 2), make(chan error, 2)
	quick := fresh(t)
	o.produce(2, policyFunc(func(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
		if !away.Load() {
			return quick(ctx, r)
		}
		reached <- struct{}{}
		<-ctx.Done()
		cut <- context.Cause(ctx)
		return nil, context.Cause(ctx)
	}))
	ids := o.issue(0, 1, 2, 3, 4, 5)
	for range 2 {
		<-reached
	}
	o.broker.Shutdown()
	for range 2 {
		require.ErrorContains(t, <-cut, "lease")
	}
	away.Store(false)
	if storeLost {
		o.config.StoreDir = t.TempDir()
	}
	o.start()
	if storeLost {
		o.open()
		ids = o.issue(6, 7, 8)
	}
	require.Len(t, o.stored(ids), len(ids))
}

// What was rolled out when the broker went away is published when it is back, however long that took.
func TestWhatIsRolledOutOutlivesItsLease(t *testing.T) {
	o := newOutage(t)
	reached, released := make(chan struct{}, 1), make(chan struct{})
	var asked atomic.Int32
	quick := fresh(t)
	o.produce(1, policyFunc(func(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
		if r.Episode == "g0-0-0" {
			asked.Add(1)
			reached <- struct{}{}
			<-released
		}
		return quick(context.WithoutCancel(ctx), r)
	}))
	// A lease that was taken later, by another, says when this one has lapsed.
	ids := o.issue(0)
	<-reached
	beside, err := o.run.Tickets(t.Context(), streams.TicketOptions{})
	require.NoError(t, err)
	defer beside.Close()
	o.issue(9)
	later, err := beside.Take(t.Context())
	require.NoError(t, err)
	o.broker.Shutdown()
	close(released)
	<-later.Lost()
	o.start()
	require.Len(t, o.stored(ids), 1)
	require.Equal(t, int32(1), asked.Load())
}
