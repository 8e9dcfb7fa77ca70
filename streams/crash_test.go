package streams_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// A broker in its own process is killed at random instants, and the reader begins anew from its checkpoint at
// others, while tickets are issued, taken, done and their trajectories read, acked and purged.
func TestKilledBrokerLosesAndDoublesNothing(t *testing.T) {
	const groups, size, producers, kills = 60, 4, 3, 6
	target := streamtest.Process(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	connect := func() *streams.Conn { return streamtest.Connect(t, target.Connection()) }
	topology := streams.DefaultTopology()
	topology.Lease, topology.MaxDeliver = 2*time.Second, 1<<20
	topology.MaxTrajectories, topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 40, 64<<20, 8<<20
	r, err := connect().Open(ctx, "test", topology)
	require.NoError(t, err)

	working, stop := context.WithCancel(ctx)
	var work errgroup.Group
	for p := range producers {
		own, err := connect().Attach(ctx, "test")
		require.NoError(t, err)
		s, err := own.Tickets(ctx, streams.TicketOptions{})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		work.Go(func() error {
			for {
				l, err := s.Take(working)
				switch {
				case err == nil:
				case working.Err() != nil:
					return nil //nolint:nilerr // the end of the work
				default:
					return err
				}
				// Some go in parts: 128 KiB is the limit.
				if err := own.Publish(ctx, streamtest.Trajectory(int(l.Ticket.Cursor), l.Ticket.Sample, 100+p*16_000, 3)); err != nil {
					return err
				}
				if err := l.Done(ctx); err != nil {
					return err
				}
			}
		})
	}
	work.Go(func() error {
		for g := range groups {
			var tickets []*schemas.Ticket
			for s := range size {
				tickets = append(tickets, streamtest.Ticket(g, s))
			}
			if err := r.Issue(ctx, tickets...); err != nil {
				return err
			}
		}
		return nil
	})
	reader := reader{run: r, want: groups * size, trained: make(map[string]uint64), progress: make(chan int)}
	work.Go(func() error {
		defer stop()
		defer close(reader.progress)
		return reader.read(ctx)
	})
	next := 1
	for n := range reader.progress {
		if n >= next*groups*size/(kills+1) && next <= kills {
			next++
			target.Stop(t)
			target.Start(t)
		}
	}
	require.NoError(t, work.Wait())
	require.Equal(t, kills+1, next)
	require.Len(t, reader.trained, groups*size)
	require.Eventually(t, func() bool {
		n, err := r.OutstandingTickets(ctx)
		return err == nil && n == 0
	}, time.Minute, 20*time.Millisecond)
}

// reader does what a trainer does: it trains on what it reads and keeps the position and what is trained in one
// checkpoint; then it acks, then it purges. It throws everything else away at random, as in a crash.
type reader struct {
	run      *streams.Run
	want     int
	progress chan int

	// The checkpoint.
	position *streams.Position
	trained  map[string]uint64
}

func (r *reader) read(ctx context.Context) error {
	for len(r.trained) < r.want {
		if err := r.life(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) life(ctx context.Context) error {
	f, err := r.run.Feed(ctx, streams.FeedOptions{From: r.position, AckWait: 2 * time.Second})
	if err != nil {
		return err
	}
	defer f.Close()
	if r.position == nil {
		p := f.Identity()
		r.position = &p
	}
	// What the last life did not come to purge still fills the stream.
	if err := f.Purge(ctx, r.position.Sequence); err != nil {
		return err
	}
	for len(r.trained) < r.want {
		batch := make(map[string]uint64)
		copies := make(map[[2]any]uint64) // by trajectory and producer, each of which has a length of its own
		var sequences []uint64
		for len(batch) < min(8, r.want-len(r.trained)) {
			d, err := f.Next(ctx)
			if err != nil {
				return err
			}
			sequences = append(sequences, d.Sequence)
			if _, ok := r.trained[d.Trajectory.ID]; ok {
				continue // done again after its first copy was purged and the broker forgot its id
			}
			one := [2]any{d.Trajectory.ID, d.Trajectory.Tokens()}
			if at, ok := copies[one]; ok {
				return fmt.Errorf("%s came at %d and at %d", d.Trajectory.ID, at, d.Sequence)
			}
			copies[one] = d.Sequence
			batch[d.Trajectory.ID] = d.Sequence // another producer may have done it too, where the lease ran out
		}
		if rand.N(8) == 0 {
			return nil // crash before the checkpoint
		}
		maps.Copy(r.trained, batch)
		r.position.Sequence = sequences[len(sequences)-1]
		select {
		case r.progress <- len(r.trained):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if rand.N(8) == 0 {
			return nil // crash before the ack
		}
		if err := f.Ack(ctx, sequences...); err != nil {
			return err
		}
		if rand.N(8) == 0 {
			return nil // crash before the purge
		}
		if err := f.Purge(ctx, r.position.Sequence); err != nil {
			return err
		}
	}
	return nil
}
