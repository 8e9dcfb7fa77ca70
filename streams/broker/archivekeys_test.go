package broker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// The archive's key reads trajectories and tells how far they are kept; it asks for nothing, publishes nothing and takes nothing away. No
// other role but the trainer tells in its place.
func TestTheArchiveReadsTrajectoriesAndTellsWhatItHasKept(t *testing.T) {
	l := lockedBroker(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	producer, trainer, archive := l.as(t, streams.RoleProducer), l.as(t, streams.RoleTrainer), l.as(t, streams.RoleArchive)
	require.NoError(t, producer.Publish(ctx, streamtest.Trajectory(1, 0, 9, 0)))
	seat, err := trainer.TakeSeat(ctx, nil)
	require.NoError(t, err)
	feed, err := seat.Run().Feed(ctx, streams.FeedOptions{})
	require.NoError(t, err)
	defer feed.Close()
	d, err := feed.Next(ctx)
	require.NoError(t, err)
	request := &streams.KeepRequest{Position: feed.Identity(), Known: feed.Known()}
	request.Sequence = d.Sequence

	own, err := archive.TakeArchive(ctx)
	require.NoError(t, err)
	following, stop := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error {
		return archive.FollowKeepRequests(following, func(r *streams.KeepRequest) error {
			span, err := archive.ReadStored(ctx, r.Position, r.Known, 0, r.Sequence, 1<<20)
			if err != nil {
				return err
			}
			return own.Tell(ctx, streams.Kept{Position: streams.Position{Stream: r.Stream, Created: r.Created, Sequence: span.Last}})
		})
	})
	told := make(chan uint64, 16)
	group.Go(func() error {
		return trainer.FollowKept(following, func(k *streams.Kept) { told <- k.UpTo(request) })
	})
	require.NoError(t, seat.Run().AskToKeep(ctx, request))
	for upTo := range told {
		if upTo == d.Sequence {
			break
		}
	}
	stop()
	require.NoError(t, group.Wait())
	require.NoError(t, archive.Emit(ctx, &schemas.Event{
		Run: "test", Type: schemas.EventWorkerJoined, At: time.Unix(1, 0).UTC(), Role: "archive", Worker: "a",
	}))

	require.ErrorIs(t, archive.AskToKeep(ctx, request), streams.ErrDenied)
	require.ErrorIs(t, archive.Publish(ctx, streamtest.Trajectory(1, 1, 9, 0)), streams.ErrDenied)
	require.ErrorIs(t, archive.Issue(ctx, streamtest.Ticket(2, 0)), streams.ErrDenied)
	_, err = archive.Feed(ctx, streams.FeedOptions{})
	require.ErrorIs(t, err, streams.ErrDenied)
	_, err = archive.LatestManifest(ctx)
	require.ErrorIs(t, err, streams.ErrDenied)
	for _, role := range []streams.Role{streams.RoleProducer, streams.RoleInference, streams.RoleTools, streams.RoleViewer} {
		_, err := l.as(t, role).TakeArchive(ctx)
		require.ErrorIs(t, err, streams.ErrDenied, role)
		_, kept, err := l.as(t, role).KeepState(ctx)
		require.NoError(t, err, role)
		require.Equal(t, d.Sequence, kept.Sequence, "every role may look")
	}
}
