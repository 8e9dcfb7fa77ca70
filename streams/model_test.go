package streams_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// naiveRun is what the package promises of a run, as plain sets and lists.
type naiveRun struct {
	issued     map[string]bool // ever: an id is never stored a second time
	queued     []string        // not leased, in no order
	leased     map[string]*streams.Lease
	deliveries map[string]int

	published []sent   // in the order of their first publish
	next      int      // the index that the feed returns next
	flying    []uint64 // returned by this feed and not acked
	position  int      // the index up to which a checkpoint has everything
}

// sent is a trajectory that was published: its ticket's id and its tokens, which are all that its bytes depend on here.
type sent struct {
	id     string
	tokens int
}

func (n *naiveRun) outstanding() int { return len(n.queued) + len(n.leased) }

// Whatever the order of issue, take, done, return, publish, ack, checkpoint, purge and restart: a
// ticket is outstanding until its end and never twice, and a feed returns what was published, in order and once.
func TestRunDoesWhatANaiveOneWould(t *testing.T) {
	// Each check opens a run on a broker: a few are enough for one go. The flag asks for more.
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		require.NoError(t, flag.Set(checks.Name, "12"))
		t.Cleanup(func() { require.NoError(t, flag.Set(checks.Name, checks.DefValue)) })
	}
	conn := streamtest.Conn(t)
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		runs++
		topology := streams.DefaultTopology()
		topology.MaxDeliver, topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 1000, 16<<20, 1<<20
		name := fmt.Sprint("run", runs)
		r, err := conn.Open(ctx, name, topology)
		require.NoError(rt, err)
		source, err := r.Tickets(ctx, streams.TicketOptions{})
		require.NoError(rt, err)
		defer source.Close()
		feed, err := r.Feed(ctx, streams.FeedOptions{})
		require.NoError(rt, err)
		defer func() { feed.Close() }()
		n := &naiveRun{
			issued: make(map[string]bool), leased: make(map[string]*streams.Lease), deliveries: make(map[string]int),
		}
		someLease := func(rt *rapid.T) (string, *streams.Lease) {
			if len(n.leased) == 0 {
				rt.Skip("no lease is open")
			}
			id := rapid.SampledFrom(slices.Sorted(maps.Keys(n.leased))).Draw(rt, "lease")
			return id, n.leased[id]
		}
		rt.Repeat(map[string]func(*rapid.T){
			"issue": func(rt *rapid.T) {
				ticket := streamtest.Ticket(rapid.IntRange(0, 3).Draw(rt, "group"), rapid.IntRange(0, 2).Draw(rt, "sample"))
				ticket.Run = name
				require.NoError(rt, r.Issue(ctx, ticket))
				if !n.issued[ticket.ID] {
					n.issued[ticket.ID] = true
					n.queued = append(n.queued, ticket.ID)
				}
			},
			"take": func(rt *rapid.T) {
				if len(n.queued) == 0 {
					rt.Skip("no ticket is queued")
				}
				l, err := source.Take(ctx)
				require.NoError(rt, err)
				at := slices.Index(n.queued, l.Ticket.ID)
				require.GreaterOrEqual(rt, at, 0, "%s is not to be had", l.Ticket.ID)
				n.queued = slices.Delete(n.queued, at, at+1)
				n.deliveries[l.Ticket.ID]++
				require.Equal(rt, n.deliveries[l.Ticket.ID], l.Delivery)
				n.leased[l.Ticket.ID] = l
			},
			"done": func(rt *rapid.T) {
				id, l := someLease(rt)
				require.NoError(rt, l.Done(ctx))
				delete(n.leased, id)
			},
			"return": func(rt *rapid.T) {
				id, l := someLease(rt)
				require.NoError(rt, l.Return(ctx, 0))
				n.queued = append(n.queued, id)
				delete(n.leased, id)
			},
			"publish": func(rt *rapid.T) {
				tokens := rapid.SampledFrom([]int{2, 100, 5000}).Draw(rt, "tokens")
				trajectory := streamtest.Trajectory(rapid.IntRange(0, 9).Draw(rt, "group"), rapid.IntRange(0, 2).Draw(rt, "sample"), tokens, 1)
				trajectory.Run = name
				require.NoError(rt, r.Publish(ctx, trajectory))
				// The same bytes again are stored once; another trajectory of the ticket is no retry.
				if one := (sent{trajectory.ID, tokens}); !slices.Contains(n.published, one) {
					n.published = append(n.published, one)
				}
			},
			"next": func(rt *rapid.T) {
				if n.next == len(n.published) {
					rt.Skip("nothing is to come")
				}
				d, err := feed.Next(ctx)
				require.NoError(rt, err)
				came := sent{d.Trajectory.ID, d.Trajectory.Tokens()}
				require.Equal(rt, n.published[n.next], came)
				require.Equal(rt, uint64(n.next+1), d.Sequence)
				n.next++
				n.flying = append(n.flying, d.Sequence)
			},
			"ack": func(rt *rapid.T) {
				if len(n.flying) == 0 {
					rt.Skip("nothing is in flight")
				}
				some := rapid.SliceOfNDistinct(rapid.SampledFrom(n.flying), 0, len(n.flying), rapid.ID[uint64]).Draw(rt, "sequences")
				require.NoError(rt, feed.Ack(ctx, some...))
				n.flying = slices.DeleteFunc(n.flying, func(s uint64) bool { return slices.Contains(some, s) })
			},
			"checkpoint and purge": func(rt *rapid.T) {
				require.NoError(rt, feed.Ack(ctx, n.flying...))
				n.flying, n.position = nil, n.next
				require.NoError(rt, feed.Purge(ctx, uint64(n.position)))
			},
			"restart the reader": func(rt *rapid.T) {
				position := feed.Identity()
				position.Sequence = uint64(n.position)
				feed.Close()
				var err error
				feed, err = r.Feed(ctx, streams.FeedOptions{From: &position})
				require.NoError(rt, err)
				n.next, n.flying = n.position, nil
			},
			"": func(rt *rapid.T) {
				counts, err := r.Counts(ctx)
				require.NoError(rt, err)
				require.Equal(rt, n.outstanding(), counts.Tickets)
				require.Zero(rt, counts.Rejected)
				require.Equal(rt, len(n.published)-n.position, counts.Trajectories)
			},
		})
	})
}
