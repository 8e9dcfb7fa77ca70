package streams_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Finding O1 of the second review of operating: a store that was lost within a publication ended the trainer.
func TestWhatIsLost(t *testing.T) {
	for _, err := range []error{
		streams.ErrStreamRecreated, streams.ErrStreamTruncated, &streams.RecreatedError{},
		jetstream.ErrStreamNotFound, jetstream.ErrBucketNotFound,
		jetstream.ErrConsumerNotFound, jetstream.ErrConsumerDoesNotExist, jetstream.ErrConsumerDeleted,
	} {
		require.True(t, streams.IsLost(fmt.Errorf("put shard: %w", err)), "%v", err)
		require.False(t, streams.IsTransient(err), "%v", err)
	}
	for _, err := range []error{
		nil, context.Canceled, streams.ErrFenced, streams.ErrDenied, streams.ErrIncompatible, streams.ErrShardsFull, streams.ErrNoWeights,
		jetstream.ErrMsgNotFound, jetstream.ErrObjectNotFound, jetstream.ErrKeyNotFound, nats.ErrNoResponders, jetstream.ErrNoStreamResponse,
	} {
		require.False(t, streams.IsLost(err), "%v", err)
	}
}

// Whatever the trainer asks of a broker that lacks the streams, or some of them, is an answer that it can go on from: it tries
// until it is told to stop, or learns that the streams are lost.
func TestEachCallOfATrainerKnowsALostStore(t *testing.T) {
	conn := streamtest.Conn(t)
	run := streamtest.Open(t, conn)
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	seat, err := run.TakeSeat(t.Context(), nil)
	require.NoError(t, err)
	run = seat.Run()
	for group := range 3 {
		require.NoError(t, run.Publish(t.Context(), streamtest.Trajectory(group, 0, 4, 0)))
	}
	feed, err := run.Feed(t.Context(), streams.FeedOptions{})
	require.NoError(t, err)
	defer feed.Close()
	var in []*streams.Delivery
	for range 3 {
		d, err := feed.Next(t.Context())
		require.NoError(t, err)
		in = append(in, d)
	}
	require.NoError(t, feed.Ack(t.Context(), in[0].Sequence))
	ask := map[string]func(context.Context) error{
		"issue": func(ctx context.Context) error { return run.Issue(ctx, streamtest.Ticket(7, 0)) },
		"publish": func(ctx context.Context) error {
			m, shards := streamtest.Weights("test", 1, []byte("weights"))
			return streamtest.PublishWeights(ctx, run, m, shards)
		},
		"control": func(ctx context.Context) error {
			return run.UpdateControl(ctx, func(*schemas.Control) *schemas.Control { return &schemas.Control{Run: "test"} })
		},
		"read control": func(ctx context.Context) error { _, err := run.Control(ctx); return err },
		"latest":       func(ctx context.Context) error { _, err := run.LatestManifest(ctx); return err },
		"outstanding":  func(ctx context.Context) error { _, err := run.OutstandingTickets(ctx); return err },
		"counts":       func(ctx context.Context) error { _, err := run.TicketCounts(ctx); return err },
		"check":        seat.Check,
		"renew":        seat.Renew,
		"feed": func(ctx context.Context) error {
			f, err := run.Feed(ctx, streams.FeedOptions{From: &streams.Position{}})
			if err == nil {
				f.Close()
			}
			return err
		},
		"behind":   func(ctx context.Context) error { _, err := feed.Behind(ctx); return err },
		"fullness": func(ctx context.Context) error { _, err := feed.Fullness(ctx); return err },
		"pending":  func(ctx context.Context) error { return feed.SetMaxPending(ctx, 77) },
		"reject":   func(ctx context.Context) error { return feed.Reject(ctx, in[1], schemas.ReasonStale, "it is old") },
		"carried": func(ctx context.Context) error {
			return feed.RejectCarried(ctx, 1, in[0].Trajectory, schemas.ReasonStale, "it is old")
		},
		"purge": func(ctx context.Context) error { return feed.Purge(ctx, 1) },
	}
	all := []string{
		"WEIR_test_TICKETS", "WEIR_test_TRAJECTORIES", "WEIR_test_REJECTED", "WEIR_test_EVENTS",
		"KV_WEIR_test_CONTROL", "KV_WEIR_test_WEIGHTS", "OBJ_WEIR_test_SHARDS",
	}
	for _, stream := range slices.Backward(all) { // each state of a store whose streams are being made
		require.NoError(t, js.DeleteStream(t.Context(), stream))
		for name, call := range ask {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			err := call(ctx)
			cancel()
			nothing := errors.Is(err, streams.ErrNoWeights) || errors.Is(err, streams.ErrNoControl)
			require.True(t, err == nil || nothing || streams.IsLost(err) || errors.Is(err, context.DeadlineExceeded), "%s without %s: %v", name, stream, err)
		}
	}
}
