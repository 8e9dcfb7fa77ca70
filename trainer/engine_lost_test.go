package trainer

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
)

// losing is an engine whose processes end before a call of a given number, and take with them all that they hold.
type losing struct {
	*enginetest.Bigram
	calls int
	// at are the calls that they end before.
	at func(call int) bool
	// lost is from then until Discard.
	lost  bool
	times int
}

func (e *losing) call() error {
	e.calls++
	if !e.lost && e.at(e.calls) {
		e.lost = true
		e.times++
		for _, x := range [][]float32{e.Table, e.Values, e.Momentum} {
			clear(x)
		}
		e.Steps = 0
	}
	if e.lost {
		return fmt.Errorf("rank 1 was killed: %w", gpu.ErrLost)
	}
	return nil
}

func (e *losing) Evaluate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) error) error {
	if err := e.call(); err != nil {
		return err
	}
	return e.Bigram.Evaluate(ctx, parts, each)
}

func (e *losing) Accumulate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) (*gpu.Gradients, error)) error {
	if err := e.call(); err != nil {
		return err
	}
	return e.Bigram.Accumulate(ctx, parts, each)
}

func (e *losing) Step(ctx context.Context, o gpu.StepOptions) (gpu.StepStats, error) {
	if err := e.call(); err != nil {
		return gpu.StepStats{}, err
	}
	return e.Bigram.Step(ctx, o)
}

func (e *losing) Export(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	if err := e.call(); err != nil {
		return nil, err
	}
	return e.Bigram.Export(ctx, dir, o)
}

func (e *losing) SaveOptimizer(ctx context.Context, dir string) (int64, error) {
	if err := e.call(); err != nil {
		return 0, err
	}
	return e.Bigram.SaveOptimizer(ctx, dir)
}

func (e *losing) LoadOptimizer(ctx context.Context, dir string, steps int64) error {
	if err := e.call(); err != nil {
		return err
	}
	return e.Bigram.LoadOptimizer(ctx, dir, steps)
}

func (e *losing) Discard(ctx context.Context) error {
	e.lost = false
	return e.Bigram.Discard(ctx)
}

func lossy(t *testing.T, cfg Config, at func(int) bool) (*losing, error) {
	t.Helper()
	w := newWorld(vocab)
	e := &losing{Bigram: enginetest.NewBigram(vocab), at: at}
	err := Run(t.Context(), cfg, Deps{Engine: e, Stream: w, Prompts: prompts{vocab}})
	if err == nil {
		audit(t, cfg, w)
		require.LessOrEqual(t, w.taken, 1, "the run is held all along")
	}
	return e, err
}

// Invariant: an engine that is lost at any call costs nothing but the time since the checkpoint.
func TestInvariantALostEngineCostsNothing(t *testing.T) {
	t.Parallel()
	never, err := lossy(t, testConfig(t.TempDir()), func(int) bool { return false })
	require.NoError(t, err)
	require.Greater(t, never.calls, 20)
	for call := 1; call <= never.calls; call++ {
		e, err := lossy(t, testConfig(filepath.Join(t.TempDir(), "run")), func(n int) bool { return n == call })
		require.NoError(t, err, "lost at call %d", call)
		require.Equal(t, 1, e.times)
		require.Equal(t, never.Table, e.Table, "lost at call %d", call)
		require.Equal(t, never.Momentum, e.Momentum)
	}
}

func TestAnEngineThatIsLostAgainAndAgainEndsTheRun(t *testing.T) {
	t.Parallel()
	e, err := lossy(t, testConfig(t.TempDir()), func(n int) bool { return n >= 12 })
	require.ErrorIs(t, err, gpu.ErrLost)
	require.ErrorContains(t, err, "the engine was lost 4 times before a step was done")
	require.Equal(t, maxLosses+1, e.times)
}
