package streamtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// openAnother is a handle on the run over a connection of its own.
func (b *bench) openAnother() *streams.Run {
	b.Helper()
	r, err := b.connectTarget().Attach(b.ctx, b.name)
	require.NoError(b, err)
	return r
}

func (b *bench) takeSeat(r *streams.Run, from *streams.Position) *streams.Seat {
	b.Helper()
	s, err := r.TakeSeat(b.ctx, from)
	require.NoError(b, err)
	return s
}

// steerRun does the work of a trainer at the end of a step, but for the purge.
func (b *bench) steerRun(r *streams.Run, version int64) []error {
	manifest, shards := Weights(b.name, version, []byte{byte(version)})
	return []error{
		PublishWeights(b.ctx, r, manifest, shards),
		r.UpdateControl(b.ctx, func(*schemas.Control) *schemas.Control {
			return &schemas.Control{Run: b.name, PolicyVersion: version, At: time.Unix(version, 0).UTC()}
		}),
		r.Issue(b.ctx, b.newTicket(int(version), 0)),
	}
}

func (b *bench) requireStanding(r *streams.Run, version int64, tickets int) {
	b.Helper()
	m, err := r.LatestManifest(b.ctx)
	require.NoError(b, err)
	require.Equal(b, version, m.Version)
	c, err := r.Control(b.ctx)
	require.NoError(b, err)
	require.Equal(b, version, c.PolicyVersion)
	require.Equal(b, tickets, b.countOutstanding(r))
}

func seatTaken(b *bench) {
	b.openRun(nil)
	zombie := b.takeSeat(b.openAnother(), nil)
	b.publishGroups(zombie.Run(), 1, 2, 3)
	require.Equal(b, []error{nil, nil, nil}, b.steerRun(zombie.Run(), 0))
	feed := b.openFeed(zombie.Run(), streams.FeedOptions{})
	held := b.nextDelivery(feed)
	watched := make(chan error, 1)
	go func() { watched <- zombie.Watch(b.ctx) }()

	heir := b.takeSeat(b.openAnother(), nil)
	require.Equal(b, zombie.Epoch()+1, heir.Epoch())
	require.ErrorIs(b, <-watched, streams.ErrFenced)
	require.ErrorIs(b, zombie.Check(b.ctx), streams.ErrFenced)
	require.ErrorIs(b, zombie.Renew(b.ctx), streams.ErrFenced)
	require.NoError(b, heir.Check(b.ctx))
	for _, err := range b.steerRun(zombie.Run(), 1) {
		require.ErrorIs(b, err, streams.ErrFenced)
	}
	require.ErrorIs(b, feed.Purge(b.ctx, 0), streams.ErrFenced)
	require.ErrorIs(b, feed.Ack(b.ctx, held.Sequence), streams.ErrFenced)
	_, err := zombie.Run().Feed(b.ctx, streams.FeedOptions{})
	require.ErrorIs(b, err, streams.ErrFenced)
	for err = nil; err == nil; { // what it had fetched before may come
		_, err = feed.Next(b.ctx)
	}
	require.ErrorIs(b, err, streams.ErrFenced)
	b.requireStanding(heir.Run(), 0, 1)

	// Nothing that the zombie had was taken away.
	feed = b.openFeed(heir.Run(), streams.FeedOptions{})
	for g := 1; g <= 3; g++ {
		d := b.nextDelivery(feed)
		require.Equal(b, b.newTrajectory(g, 100), d.Trajectory)
		require.NoError(b, feed.Ack(b.ctx, d.Sequence))
	}
	require.Equal(b, []error{nil, nil, nil}, b.steerRun(heir.Run(), 1))
	b.requireStanding(heir.Run(), 1, 2)
	require.NoError(b, heir.Renew(b.ctx))
	require.Equal(b, heir.Epoch()+1, b.takeSeat(b.openAnother(), nil).Epoch(), "nor does an heir of the heir wait")
}

func seatPurged(b *bench) {
	b.openRun(nil)
	first := b.takeSeat(b.openAnother(), nil)
	b.publishGroups(first.Run(), 1, 2, 3)
	feed := b.openFeed(first.Run(), streams.FeedOptions{})
	for range 2 {
		require.NoError(b, feed.Ack(b.ctx, b.nextDelivery(feed).Sequence))
	}
	require.NoError(b, feed.Purge(b.ctx, 2))
	position := feed.Identity()
	position.Sequence = 1
	_, err := b.openAnother().TakeSeat(b.ctx, &position)
	require.ErrorIs(b, err, streams.ErrPurged)
	require.ErrorContains(b, err, "needed from 2 on")
	require.NoError(b, first.Check(b.ctx), "who cannot go on fences nobody")
	position.Sequence = 2
	second := b.takeSeat(b.openAnother(), &position)
	require.Equal(b, "g3-0-0", b.nextDelivery(b.openFeed(second.Run(), streams.FeedOptions{From: &position})).Trajectory.ID)
	position.Created = position.Created.Add(time.Second)
	position.Sequence = 0
	b.takeSeat(b.openAnother(), &position) // it has to do with another stream
	position = feed.Identity()
	_, err = b.openAnother().TakeSeat(b.ctx, &position)
	require.ErrorIs(b, err, streams.ErrPurged, "every holder hands on how far was purged")
}
