package streamtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

func trajectoryOnce(b *bench) {
	r := b.openRun(nil)
	b.publishGroups(r, 1, 1, 2, 1)
	closed := Closed(3, 1, 4)
	closed.Run = b.name
	require.NoError(b, r.CloseGroup(b.ctx, closed))
	require.NoError(b, r.CloseGroup(b.ctx, closed))
	f := b.openFeed(r, streams.FeedOptions{})
	for i := range 2 {
		d := b.nextDelivery(f)
		require.Equal(b, uint64(i+1), d.Sequence)
		require.Equal(b, b.newTrajectory(i+1, 100), d.Trajectory)
		require.Nil(b, d.Closed)
		require.NotZero(b, d.Bytes)
		require.False(b, d.Published.IsZero())
	}
	require.Equal(b, closed, b.nextDelivery(f).Closed)
	b.requireNothing(r, f)

	bad := b.newTrajectory(1, 100)
	bad.Segments[0].Logprobs = nil
	require.ErrorIs(b, r.Publish(b.ctx, bad), schemas.ErrInvalid)
	bad = b.newTrajectory(1, 100)
	bad.Run = "another"
	require.ErrorContains(b, r.Publish(b.ctx, bad), "another")
	bad = b.newTrajectory(1, 100)
	bad.Producer = "p.1"
	require.Error(b, r.Publish(b.ctx, bad))
}

func trajectoryLarge(b *bench) {
	r := b.openRun(nil)
	require.Less(b, b.conn.NATS().MaxPayload(), int64(1<<20), "the target's payload limit must make it go in parts")
	large := b.newTrajectory(1, 100_000)
	var g errgroup.Group
	g.Go(func() error { return r.Publish(b.ctx, large) })
	g.Go(func() error { return r.Publish(b.ctx, b.newTrajectory(2, 60_000)) })
	for i := range 8 {
		g.Go(func() error { return r.Publish(b.ctx, b.newTrajectory(10+i, 50)) })
	}
	require.NoError(b, g.Wait())
	require.NoError(b, r.Publish(b.ctx, large), "again, as after a lost acknowledgement")
	f := b.openFeed(r, streams.FeedOptions{})
	var sequences []uint64
	for range 10 {
		d := b.nextDelivery(f)
		require.NotNil(b, d.Trajectory)
		if d.Trajectory.ID == large.ID {
			require.Equal(b, large, d.Trajectory)
			require.Greater(b, d.Bytes, 4*payload)
		}
		sequences = append(sequences, d.Sequence)
	}
	b.requireNothing(r, f)
	f.Close()
	// From whatever sequence a reader goes on, it gets the messages after it, and no torn message.
	slices.Sort(sequences)
	identity := f.Identity()
	for i, s := range sequences {
		identity.Sequence = s
		g := b.openFeed(r, streams.FeedOptions{From: &identity})
		for _, want := range sequences[i+1:] {
			require.Equal(b, want, b.nextDelivery(g).Sequence)
		}
		require.Equal(b, "end", b.nextDelivery(g).Closed.Producer)
		g.Close()
	}
	require.Empty(b, b.readRejected(r))
	// A reader that may hold fewer messages than there are parts gets it none the less, and the messages after it.
	narrow := b.openFeed(r, streams.FeedOptions{Durable: "narrow", MaxPending: 3})
	for _, want := range sequences {
		d := b.nextDelivery(narrow)
		require.Equal(b, want, d.Sequence)
		require.NoError(b, narrow.Ack(b.ctx, d.Sequence))
	}
	b.requireNothing(r, narrow)
	// The same where the messages before are purged: a message in parts goes as a whole.
	for i, s := range sequences {
		identity.Sequence = s
		g := b.openFeed(r, streams.FeedOptions{From: &identity})
		require.NoError(b, g.Purge(b.ctx, s))
		for _, want := range sequences[i+1:] {
			require.Equal(b, want, b.nextDelivery(g).Sequence)
		}
		g.Close()
	}
	require.Empty(b, b.readRejected(r))
	huge := b.newTrajectory(3, 10)
	huge.Answer = string(bytes.Repeat([]byte("x"), 300<<20))
	require.ErrorIs(b, r.Publish(b.ctx, huge), streams.ErrTooLarge)
}

func trajectoryFull(b *bench) {
	r := b.openRun(func(t *streams.Topology) { t.MaxTrajectories = 4 })
	b.publishGroups(r, 1, 2, 3, 4)
	short, cancel := context.WithTimeout(b.ctx, 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(b, r.Publish(short, b.newTrajectory(5, 100)), context.DeadlineExceeded)
	var g errgroup.Group
	for i := 5; i < 12; i++ {
		g.Go(func() error { return r.Publish(b.ctx, b.newTrajectory(i, 100)) })
	}
	// In parts, it waits just as well: no part without the others.
	g.Go(func() error { return r.Publish(b.ctx, b.newTrajectory(12, 20_000)) })
	f := b.openFeed(r, streams.FeedOptions{})
	seen := make(map[string]bool)
	for len(seen) < 12 {
		d := b.nextDelivery(f)
		require.False(b, seen[d.Trajectory.ID])
		seen[d.Trajectory.ID] = true
		require.ErrorContains(b, f.Purge(b.ctx, d.Sequence), "not acked")
		require.NoError(b, f.Ack(b.ctx, d.Sequence))
		require.NoError(b, f.Purge(b.ctx, d.Sequence))
	}
	require.NoError(b, g.Wait())
	require.Empty(b, b.readRejected(r))
}

func feedOnce(b *bench) {
	r := b.openRun(nil)
	f := b.openFeed(r, streams.FeedOptions{MaxPending: 64, AckWait: 300 * time.Millisecond})
	b.publishGroups(r, 1, 2, 3, 4, 5, 6)
	require.NoError(b, r.Publish(b.ctx, b.newTrajectory(7, 30_000)))
	var held []uint64
	for i := range 7 {
		held = append(held, b.nextDelivery(f).Sequence)
		if i == 3 {
			require.NoError(b, f.Ack(b.ctx, held[1], held[3]))
		}
	}
	// The broker sends everything again: somebody reset the consumer, and acks were lost with that.
	_, err := b.openJetStream().ResetConsumerToSequence(b.ctx, f.Identity().Stream, "trainer", 1)
	require.NoError(b, err)
	b.requireNothing(r, f)
	require.NoError(b, f.Ack(b.ctx, held...))
	require.ErrorIs(b, f.Ack(b.ctx, 1000), streams.ErrNotInFlight)
	f.Close()
	again := b.openFeed(r, streams.FeedOptions{MaxPending: 64})
	require.NoError(b, r.Publish(b.ctx, b.newTrajectory(8, 100)))
	require.Equal(b, "g8-0-0", b.nextDelivery(again).Trajectory.ID, "what was acked does not come again")
	// A message that was returned and not acked goes to the next feed.
	again.Close()
	require.Equal(b, "g8-0-0", b.nextDelivery(b.openFeed(r, streams.FeedOptions{})).Trajectory.ID)
}

func feedFrom(b *bench) {
	r := b.openRun(nil)
	b.publishGroups(r, 1, 2, 3, 4)
	f := b.openFeed(r, streams.FeedOptions{MaxPending: 2})
	position := f.Identity()
	require.Zero(b, position.Sequence)
	for range 2 {
		require.NoError(b, f.Ack(b.ctx, b.nextDelivery(f).Sequence))
	}
	require.Equal(b, "g3-0-0", b.nextDelivery(f).Trajectory.ID)
	f.Close()
	for _, c := range []struct {
		sequence uint64
		want     string
	}{{1, "g2-0-0"}, {3, "g4-0-0"}, {0, "g1-0-0"}} {
		position.Sequence = c.sequence
		f := b.openFeed(r, streams.FeedOptions{From: &position})
		require.Equal(b, position, f.Identity())
		require.Equal(b, c.want, b.nextDelivery(f).Trajectory.ID)
		f.Close()
	}
	// A stranger's message claims to be the second part of the message at the position.
	good, err := schemas.Marshal(b.newTrajectory(5, 10))
	require.NoError(b, err)
	_, err = b.openJetStream().PublishMsg(b.ctx, &nats.Msg{
		Subject: "weir." + b.name + ".trajectories.3.p1", Header: partHeader("2/2", 5000, "x"), Data: good,
	})
	require.NoError(b, err)
	position.Sequence = 4
	f = b.openFeed(r, streams.FeedOptions{From: &position})
	b.requireNothing(r, f)
	require.Equal(b, schemas.ReasonMalformed, b.readRejected(r)[0].Reason)
	f.Close()
	// And another, of a message that is purged, whose parts nobody can count any more.
	_, err = b.openJetStream().PublishMsg(b.ctx, &nats.Msg{
		Subject: "weir." + b.name + ".trajectories.3.p1", Header: partHeader("2/2", 5000, "x"), Data: good,
	})
	require.NoError(b, err)
	position.Sequence = 6
	f = b.openFeed(r, streams.FeedOptions{From: &position})
	require.NoError(b, f.Purge(b.ctx, 6))
	b.publishGroups(r, 9)
	require.Equal(b, "g9-0-0", b.nextDelivery(f).Trajectory.ID)
	rejected := b.readRejected(r)
	require.Len(b, rejected, 2)
	require.Equal(b, uint64(7), rejected[1].Original)
	require.Equal(b, schemas.ReasonMalformed, rejected[1].Reason)
}

func feedRecreated(b *bench) {
	r := b.openRun(nil)
	b.publishGroups(r, 1, 2)
	f := b.openFeed(r, streams.FeedOptions{})
	b.nextDelivery(f)
	position := f.Identity()
	require.NoError(b, b.openJetStream().DeleteStream(b.ctx, position.Stream))
	again := b.openRun(nil)
	b.publishGroups(again, 3, 4)
	position.Sequence = 1
	_, err := again.Feed(b.ctx, streams.FeedOptions{From: &position})
	require.ErrorIs(b, err, streams.ErrStreamRecreated)
	var recreated *streams.RecreatedError
	require.ErrorAs(b, err, &recreated)
	require.Equal(b, recreated.Want, position.Created)
	require.True(b, recreated.Have.After(recreated.Want))
	for err = nil; err == nil; { // what it had fetched before may come
		_, err = f.Next(b.ctx)
	}
	require.ErrorIs(b, err, streams.ErrStreamRecreated, "a feed that is open notices too")
	require.ErrorIs(b, f.Purge(b.ctx, 0), streams.ErrStreamRecreated)
}

func feedTruncated(b *bench) {
	r := b.openRun(nil)
	b.publishGroups(r, 1, 2)
	position := b.openFeed(r, streams.FeedOptions{}).Identity()
	position.Sequence = 3
	_, err := r.Feed(b.ctx, streams.FeedOptions{From: &position})
	require.ErrorIs(b, err, streams.ErrStreamTruncated)
	require.ErrorContains(b, err, "ends at 2, the position is 3")
}

func feedRejects(b *bench) {
	r := b.openRun(nil)
	encode := func(v any) []byte {
		data, err := schemas.Marshal(v)
		require.NoError(b, err)
		return data
	}
	good := b.newTrajectory(1, 10)
	foreign := b.newTrajectory(1, 10)
	foreign.Run = "another"
	broken := b.newTrajectory(1, 10)
	broken.Segments[0].ActionMask[0] = 1
	version := encode(good)
	version = bytes.Replace(version, append([]byte("schema"), schemas.Version), []byte("schema\x09"), 1)
	cases := []struct {
		name, subject string
		data          []byte
		header        nats.Header
		reason        schemas.Reason
	}{
		{"garbage", "trajectories.3.p1", []byte("garbage"), nil, schemas.ReasonMalformed},
		{"empty", "trajectories.3.p1", nil, nil, schemas.ReasonMalformed},
		{"cut off", "trajectories.3.p1", encode(good)[:100], nil, schemas.ReasonMalformed},
		{"another wire version", "trajectories.3.p1", version, nil, schemas.ReasonVersion},
		{"another kind", "trajectories.3.p1", encode(b.newTicket(1, 0)), nil, schemas.ReasonForeign},
		{"another run", "trajectories.3.p1", encode(foreign), nil, schemas.ReasonForeign},
		{"another producer's subject", "trajectories.3.p2", encode(good), nil, schemas.ReasonForeign},
		{"another version's subject", "trajectories.4.p1", encode(good), nil, schemas.ReasonForeign},
		{"contradicting itself", "trajectories.3.p1", encode(broken), nil, schemas.ReasonMalformed},
		{"bad part header", "trajectories.3.p1", encode(good), partHeader("x/y", 10, good.ID), schemas.ReasonMalformed},
		{"a part before the first sequence", "trajectories.3.p1", encode(good), partHeader("900/1000", 5000, good.ID), schemas.ReasonMalformed},
		{"a part whose rest never comes", "trajectories.3.p1", encode(good), partHeader("1/3", 5000, good.ID), schemas.ReasonMalformed},
		{"a part without the others", "trajectories.3.p1", encode(good), partHeader("2/2", 5000, good.ID), schemas.ReasonMalformed},
		{"more than a reader holds", "trajectories.3.p1", encode(good), partHeader("1/2", 1<<40, good.ID), schemas.ReasonOversized},
	}
	js := b.openJetStream()
	for _, c := range cases {
		_, err := js.PublishMsg(b.ctx, &nats.Msg{Subject: "weir." + b.name + "." + c.subject, Header: c.header, Data: c.data})
		require.NoError(b, err, c.name)
	}
	b.publishGroups(r, 2)
	f := b.openFeed(r, streams.FeedOptions{})
	require.Equal(b, "g2-0-0", b.nextDelivery(f).Trajectory.ID)
	b.requireNothing(r, f)
	refused := map[schemas.Reason]int{}
	for _, c := range cases {
		refused[c.reason]++
	}
	require.Equal(b, refused, f.Refused())
	require.Empty(b, f.Refused())
	rejected := b.readRejected(r)
	require.Len(b, rejected, len(cases))
	for i, c := range cases {
		m := rejected[i]
		require.Equal(b, c.reason, m.Reason, "%s: %s", c.name, m.Detail)
		require.Equal(b, "weir."+b.name+"."+c.subject, m.Subject, c.name)
		require.Equal(b, f.Identity().Stream, m.Stream)
		require.True(b, bytes.Equal(c.data, m.Data), c.name)
		require.NotEmpty(b, m.Detail, c.name)
	}
}

// partHeader claims that a message is part of a message of so many bytes.
func partHeader(index string, size int, of string) nats.Header {
	hash := sha256.Sum256([]byte(of))
	return nats.Header{"Weir-Part": {index}, "Weir-Size": {fmt.Sprint(size)}, "Weir-Hash": {hex.EncodeToString(hash[:])}}
}

func feedReject(b *bench) {
	r := b.openRun(nil)
	large := b.newTrajectory(1, 30_000)
	require.NoError(b, r.Publish(b.ctx, large))
	b.publishGroups(r, 2)
	f := b.openFeed(r, streams.FeedOptions{})
	d := b.nextDelivery(f)
	require.NoError(b, f.Reject(b.ctx, d, schemas.ReasonStale, "3 versions behind, at most 1"))
	require.NoError(b, f.Reject(b.ctx, d, schemas.ReasonStale, "again"))
	require.ErrorIs(b, f.Reject(b.ctx, &streams.Delivery{Delivery: schemas.Delivery{Sequence: 500}}, schemas.ReasonStale, ""), streams.ErrNotInFlight)
	require.Equal(b, "g2-0-0", b.nextDelivery(f).Trajectory.ID)
	rejected := b.readRejected(r)
	require.Len(b, rejected, 1)
	require.Equal(b, schemas.ReasonStale, rejected[0].Reason)
	require.Equal(b, "3 versions behind, at most 1", rejected[0].Detail)
	require.Equal(b, d.Sequence, rejected[0].Original)
	require.NoError(b, r.Replay(b.ctx, rejected[0]))
	require.NoError(b, r.Replay(b.ctx, rejected[0]))
	// A message that a checkpoint has carried is no longer the feed's: it is kept all the same, once, and can be replayed.
	for range 2 {
		require.NoError(b, f.RejectCarried(b.ctx, 2, b.newTrajectory(2, 100), schemas.ReasonStale, "later"))
	}
	rejected = b.readRejected(r)
	require.Len(b, rejected, 2)
	require.Equal(b, uint64(2), rejected[1].Original)
	require.NoError(b, r.Replay(b.ctx, rejected[1]))
	require.Equal(b, large, b.nextDelivery(f).Trajectory)
	require.Equal(b, b.newTrajectory(2, 100), b.nextDelivery(f).Trajectory)
	b.requireNothing(r, f)
}

// testOutage works on while the target goes away and comes back, twice, and wants everything exactly once.
func testOutage(b *bench) {
	const groups, producers = 24, 3
	r := b.openRun(func(t *streams.Topology) { t.Lease = 2 * time.Second; t.MaxDeliver = 1000 })
	f := b.openFeed(r, streams.FeedOptions{AckWait: 2 * time.Second})
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var work errgroup.Group
	for range producers {
		own, err := b.connectTarget().Attach(b.ctx, b.name)
		require.NoError(b, err)
		s := b.openSource(own, streams.TicketOptions{MaxLeases: 4})
		work.Go(func() error {
			for {
				l, err := s.Take(ctx)
				switch {
				case err == nil:
				case ctx.Err() != nil:
					return nil //nolint:nilerr // the end of the case
				default:
					return err
				}
				// The same bytes whoever rolls it out: the broker's window then knows a second copy.
				t := Trajectory(int(l.Ticket.Cursor), l.Ticket.Sample, 100+5000*(l.Ticket.Sample%2), 3)
				t.Run = b.name
				if err := own.Publish(b.ctx, t); err != nil {
					return err
				}
				if err := l.Done(b.ctx); err != nil {
					return err
				}
			}
		})
	}
	half := make(chan struct{})
	var once sync.Once
	work.Go(func() error {
		for g := range groups {
			for s := range 4 {
				if err := r.Issue(ctx, b.newTicket(g, s)); err != nil {
					return err
				}
			}
			if g == groups/2 {
				once.Do(func() { close(half) })
			}
		}
		return nil
	})
	seen := make(map[string]uint64)
	received := make(chan error, 1)
	go func() {
		var unacked []uint64
		for len(seen) < groups*4 {
			d, err := f.Next(b.ctx)
			if err != nil {
				received <- err
				return
			}
			if before, ok := seen[d.Trajectory.ID]; ok {
				received <- fmt.Errorf("%s came at %d and at %d", d.Trajectory.ID, before, d.Sequence)
				return
			}
			seen[d.Trajectory.ID] = d.Sequence
			if unacked = append(unacked, d.Sequence); len(unacked) == 5 {
				if err := f.Ack(b.ctx, unacked...); err != nil {
					received <- err
					return
				}
				unacked = nil
			}
		}
		received <- f.Ack(b.ctx, unacked...)
	}()
	b.target.Stop(b.T)
	b.target.Start(b.T)
	<-half
	b.target.Stop(b.T)
	b.target.Start(b.T)
	require.NoError(b, <-received)
	b.awaitOutstanding(r, 0)
	cancel()
	require.NoError(b, work.Wait())
	require.Len(b, seen, groups*4)
	b.requireNothing(r, f)
}
