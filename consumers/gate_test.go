package consumers

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

func TestDrainFinishesWhatRunsAndRefusesTheRest(t *testing.T) {
	t.Parallel()
	r := newRig(smallConfig(), false)
	runBatcher(t, r)
	_, err := r.Swap(t.Context(), fakeSnapshot(0))
	require.NoError(t, err)
	g := newGate(r, orUnseen(nil))
	req := ask("a", 1)
	drained := make(chan error, 1)
	var first sync.Once
	got := 0
	err = g.Generate(t.Context(), req, func(c *schemas.GenerateChunk) error {
		first.Do(func() { go func() { drained <- g.drainCalls(t.Context()) }() })
		require.NotEqual(t, schemas.GenerateError, c.Stop)
		got += len(c.Tokens)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, <-drained)
	require.Equal(t, req.MaxTokens, got)
	refused, err := gather(t.Context(), g, req)
	require.NoError(t, err)
	require.Equal(t, "the engine is stopping", refused.Error)
	require.True(t, refused.Retry)
}

func TestDrainEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newReady(t, smallConfig(), false) // nothing steps it
	g := newGate(r, orUnseen(nil))
	ctx, cancel := context.WithCancel(t.Context())
	require.True(t, g.enterCall())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Generate(ctx, ask("a", 1), func(*schemas.GenerateChunk) error { return nil }) // refused, or ended by its context
	}()
	short, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	require.ErrorIs(t, g.drainCalls(short), context.DeadlineExceeded)
	cancel()
	<-ended
	g.leaveCall()
	<-g.empty
}

func TestEveryCallIsCountedOnceByItsEnd(t *testing.T) {
	t.Parallel()
	m := orUnseen(nil)
	r := newRig(smallConfig(), false)
	runBatcher(t, r)
	_, err := r.Swap(t.Context(), fakeSnapshot(0))
	require.NoError(t, err)
	g := newGate(r, m)
	_, err = gather(t.Context(), g, ask("a", 1, 2))
	require.NoError(t, err)
	_, err = gather(t.Context(), g, ask("a")) // no tokens
	require.NoError(t, err)
	require.Error(t, g.Stream(t.Context(), ask("b", 1), func(*schemas.GenerateChunk) error { return errors.New("the caller is gone") }))
	r.versionWait = 1
	late := ask("c", 1)
	late.MinVersion = 7
	_, err = gather(t.Context(), g, late)
	require.NoError(t, err)
	for stop, n := range map[string]float64{"length": 1, "error": 2, "cancelled": 1, "stop_token": 0} {
		require.InDelta(t, n, testutil.ToFloat64(m.calls.WithLabelValues(stop)), 0, stop)
	}
	require.GreaterOrEqual(t, testutil.ToFloat64(m.sampled), 6.0)
}
