package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

func TestSpaceIsSetAsideForWhoGoesFirst(t *testing.T) {
	ctx := t.Context()
	looks := 0
	look := func(context.Context) (int64, int64, error) {
		looks++
		return 3, 100_000, nil
	}
	v := newFreeSpace()
	for _, c := range []struct {
		parts, bytes int
		want         bool
	}{
		{2, 60_000, true},
		{1, 60_000, false}, // too many bytes
		{2, 10, false},     // too many messages
		{1, 10_000, true},
		{1, 10, false},
	} {
		fits, err := v.reserveSpace(ctx, c.parts, c.bytes, look)
		require.NoError(t, err)
		require.Equal(t, c.want, fits, c)
	}
	require.Equal(t, 1, looks, "one answer for all")
	v.at = v.at.Add(-freeSpaceAge)
	fits, err := v.reserveSpace(ctx, 1, 10, look)
	require.NoError(t, err)
	require.True(t, fits)
	require.Equal(t, 2, looks)
}

func TestWhoWasRefusedLooksBeforeItSendsAgain(t *testing.T) {
	full := &jetstream.APIError{Code: 503, ErrorCode: codeStoreFailed, Description: "maximum messages exceeded"}
	space, fault := int64(0), error(nil)
	look := func(context.Context) (int64, int64, error) { return space, 1 << 30, fault }
	try := func(w *waiter) error { return w.checkRoom(t.Context(), newFreeSpace(), look) }
	w := &waiter{parts: 1, bytes: freeSpaceFrom}
	require.NoError(t, try(w), "the first time")
	refusal := w.noteAttempt(full)
	require.ErrorIs(t, refusal, errFull)
	require.True(t, IsTransient(refusal))
	require.ErrorIs(t, try(w), errFull)
	space = 1
	require.NoError(t, try(w))
	space, fault = 0, errors.New("the state cannot be read")
	require.NoError(t, try(w), "then it is sent")
	fault = nil
	w.sent = time.Now().Add(-freeSpaceUnasked - time.Second)
	require.NoError(t, try(w), "the broker has the last word")
	// An attempt of which it is not known what came is made again at once: the message may be stored.
	lost := errors.New("lost")
	require.Equal(t, lost, w.noteAttempt(lost))
	require.NoError(t, try(w))
	small := &waiter{parts: 1, bytes: freeSpaceFrom - 1}
	require.NotErrorIs(t, small.noteAttempt(full), errFull)
	require.NoError(t, try(small))
}

// Publishers that a full stream refuses send their trajectories once more, when there is room, however long it takes.
func TestAFullStreamIsSentNoTrajectoryAgainBeforeItHasRoom(t *testing.T) {
	t.Parallel()
	f := newFixture(t, false)
	topology := DefaultTopology()
	topology.MaxTrajectories = 2
	run, err := f.connect(t).Open(f.ctx, "narrow", topology)
	require.NoError(t, err)
	looks, err := f.run.nc.SubscribeSync("$JS.API.STREAM.INFO." + run.names.trajectories)
	require.NoError(t, err)
	require.NoError(t, f.run.nc.Flush())
	const publishers, size = 6, 64 << 10
	publish := func(i int) error {
		return run.publishOnce(f.ctx, run.names.trajectories, run.names.trajectorySubject(1, "p"), fmt.Sprint(i), nil, make([]byte, size))
	}
	require.NoError(t, publish(-1))
	require.NoError(t, publish(-2))
	before := run.nc.Stats().OutBytes
	stored := make(chan error, publishers)
	for i := range publishers {
		go func() { stored <- publish(i) }()
	}
	for range 8 {
		_, err := looks.NextMsg(time.Minute)
		require.NoError(t, err, "they look at the state")
	}
	sent := run.nc.Stats().OutBytes - before
	require.GreaterOrEqual(t, sent, uint64(publishers*size), "each was refused once")
	require.Less(t, sent, uint64(publishers*size+size/2), "and sent no more")
	stream, err := run.js.Stream(f.ctx, run.names.trajectories)
	require.NoError(t, err)
	for range publishers / 2 {
		require.NoError(t, stream.Purge(f.ctx))
		require.NoError(t, <-stored)
		require.NoError(t, <-stored)
	}
	sent = run.nc.Stats().OutBytes - before
	require.Less(t, sent, uint64(3*publishers*size), "each was sent when there was room")
	info, err := stream.Info(f.ctx)
	require.NoError(t, err)
	require.Equal(t, uint64(2+publishers), info.State.LastSeq, "each is stored once")
}

// What 32 publishers of 128 KB send to a stream that stays full for half a minute.
func BenchmarkFullStream(b *testing.B) {
	f := newFixture(b, false)
	topology := DefaultTopology()
	topology.MaxTrajectories = 1
	run, err := f.connect(b).Open(f.ctx, "narrow", topology)
	require.NoError(b, err)
	publish := func(ctx context.Context, i int) error {
		return run.publishOnce(ctx, run.names.trajectories, run.names.trajectorySubject(1, "p"), fmt.Sprint(i), nil, make([]byte, 128<<10))
	}
	require.NoError(b, publish(f.ctx, -1))
	before := run.nc.Stats()
	for range b.N {
		ctx, cancel := context.WithTimeout(f.ctx, 30*time.Second)
		var publishers sync.WaitGroup
		for i := range 32 {
			publishers.Go(func() { _ = publish(ctx, i) }) // it ends with ctx
		}
		publishers.Wait()
		cancel()
	}
	after := run.nc.Stats()
	b.ReportMetric(float64(after.OutBytes-before.OutBytes)/1e6/float64(b.N), "sent-MB/op")
	b.ReportMetric(float64(after.InBytes-before.InBytes)/1e6/float64(b.N), "received-MB/op")
}
