package streams_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// A message that cannot be refused now, since REJECTED is not there, is not passed over: it comes first again.
func TestFeedPassesNothingThatItCouldNotRefuse(t *testing.T) {
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(1, 0, 10, 3)))
	_, err = js.Publish(t.Context(), "weir.test.trajectories.3.p1", []byte("garbage"))
	require.NoError(t, err)
	require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(2, 0, 10, 3)))
	require.NoError(t, js.DeleteStream(t.Context(), "WEIR_test_REJECTED"))

	f, err := r.Feed(t.Context(), streams.FeedOptions{})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	d, err := f.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, "g1-0-0", d.Trajectory.ID)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = f.Next(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, uint64(1), f.Passed())

	streamtest.Open(t, conn)
	d, err = f.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, "g2-0-0", d.Trajectory.ID)
	require.Equal(t, uint64(3), f.Passed())
	var reasons []schemas.Reason
	for m, err := range r.Rejected(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, uint64(2), m.Original)
		reasons = append(reasons, m.Reason)
	}
	require.Equal(t, []schemas.Reason{schemas.ReasonMalformed}, reasons)
}

// A lone first part is refused as soon as a part that contradicts it stands in the place of its second.
func TestAPartWhoseNextContradictsItIsRefused(t *testing.T) {
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	stray := func(part string, hash byte) {
		_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "weir.test.trajectories.3.p1", Data: []byte("stray"), Header: nats.Header{
			"Weir-Part": {part}, "Weir-Size": {"15"}, "Weir-Hash": {strings.Repeat(string(hash), 64)},
		}})
		require.NoError(t, err)
	}
	stray("1/3", 'a')
	stray("2/3", 'b')
	stray("3/3", 'b')
	require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(1, 0, 10, 3)))

	f, err := r.Feed(t.Context(), streams.FeedOptions{})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	d, err := f.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, "g1-0-0", d.Trajectory.ID)
	refused := map[uint64]schemas.Reason{}
	for m, err := range r.Rejected(t.Context()) {
		require.NoError(t, err)
		refused[m.Original] = m.Reason
	}
	require.Equal(t, map[uint64]schemas.Reason{
		1: schemas.ReasonMalformed, 2: schemas.ReasonMalformed, 3: schemas.ReasonMalformed,
	}, refused)
}

// An answer to an evaluation ticket that a hostile producer publishes as a trajectory, under the id of a sample, is refused by its
// kind, and what it stands in the place of is closed.
func TestAnEvaluationIsNoTrajectory(t *testing.T) {
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	rollout, err := schemas.Marshal(streamtest.Trajectory(1, 0, 10, 3))
	require.NoError(t, err)
	data, err := schemas.Marshal(&schemas.Evaluation{
		Run: "test", Ticket: "g1-0-0", Producer: "p1", Outcome: schemas.EvaluationDone, Trajectory: rollout,
	})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "weir.test.trajectories.3.p1", data, jetstream.WithMsgID("g1-0-0/p1"))
	require.NoError(t, err)
	require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(2, 0, 10, 3)))

	f, err := r.Feed(t.Context(), streams.FeedOptions{})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	d, err := f.Next(t.Context())
	require.NoError(t, err)
	require.Nil(t, d.Trajectory)
	require.Equal(t, []int{0}, d.Closed.Cancelled)
	d, err = f.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, "g2-0-0", d.Trajectory.ID)
	for m, err := range r.Rejected(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, schemas.ReasonForeign, m.Reason)
		require.Equal(t, uint64(1), m.Original)
	}
}
