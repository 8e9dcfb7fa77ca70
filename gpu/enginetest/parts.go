package enginetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

// testParts checks that a call with several parts gives the same as a call for each part, in outputs and in the gathered
// gradient, bit for bit, and that callbacks come in order.
func testParts(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	e := openEngine(t, newEngine, cfg)
	r := rand.New(rand.NewPCG(14, 14))
	var parts []*gpu.Batch
	var up []*gpu.Gradients
	for _, lengths := range [][]int{{40, 3}, {9}, {}, {70, 1, 12}, {5, 5}} {
		b := packedBatch(r, cfg.VocabSize, lengths...)
		parts, up = append(parts, b), append(up, gradientsFor(r, b, cfg.ValueHead))
	}
	up[4] = nil // stands for zeros
	var alone []*gpu.Outputs
	for i, b := range parts {
		alone = append(alone, accumulatePart(t, e, b, up[i]))
	}
	want := readGradient(t, e)

	next := 0
	require.NoError(t, e.Evaluate(t.Context(), parts, func(i int, o *gpu.Outputs) error {
		require.Equal(t, next, i)
		next++
		require.Equal(t, alone[i], copyFloats(o))
		return nil
	}))
	require.Len(t, parts, next)
	next = 0
	require.NoError(t, e.Accumulate(t.Context(), parts, func(i int, o *gpu.Outputs) (*gpu.Gradients, error) {
		require.Equal(t, next, i)
		next++
		require.Equal(t, alone[i], copyFloats(o))
		return up[i], nil
	}))
	require.Len(t, parts, next)
	require.Equal(t, want, readGradient(t, e))
	require.GreaterOrEqual(t, e.Limits().Ranks, 1)
	if e.Limits().ProbSquares {
		require.NotNil(t, alone[0].ProbSquares)
	}
	require.NoError(t, e.Evaluate(t.Context(), nil, nil), "no parts are no work")
}

// testErrors checks that a callback's error comes back as it is, that no callback follows it, and that Discard makes the engine
// as good as one that never met it.
func testErrors(t *testing.T, newEngine NewEngine) {
	cfg := testModels()[2].cfg
	e := openEngine(t, newEngine, cfg)
	r := rand.New(rand.NewPCG(15, 15))
	one, two := packedBatch(r, cfg.VocabSize, 9, 4), packedBatch(r, cfg.VocabSize, 12)
	up := gradientsFor(r, one, true)
	accumulatePart(t, e, one, up)
	want := readGradient(t, e)
	wrong := errors.New("no loss for this")
	for at := range 2 {
		calls := 0
		err := e.Accumulate(t.Context(), []*gpu.Batch{one, two}, func(i int, _ *gpu.Outputs) (*gpu.Gradients, error) {
			calls++
			if i == at {
				return nil, wrong
			}
			return up, nil
		})
		require.ErrorIs(t, err, wrong)
		require.Equal(t, at+1, calls)
		require.NoError(t, e.Discard(t.Context()))
		accumulatePart(t, e, one, up)
		require.Equal(t, want, readGradient(t, e), "what was gathered before is gone")
	}
	require.ErrorIs(t, e.Evaluate(t.Context(), []*gpu.Batch{one, two}, func(i int, _ *gpu.Outputs) error {
		require.Zero(t, i)
		return wrong
	}), wrong)
	_, before := engineMoments(t, e)
	w := engineWeights(t, e)
	accumulatePart(t, e, one, up)
	require.NoError(t, e.Discard(t.Context()))
	_, after := engineMoments(t, e)
	require.Equal(t, before, after)
	require.Equal(t, w, engineWeights(t, e), "a discarded gradient moves nothing")
	stats, err := e.Step(t.Context(), gpu.StepOptions{Beta2: 0.5, Epsilon: 1})
	require.NoError(t, err)
	require.Zero(t, stats.GradNorm)
}

// testEnded checks that calls under a context that has ended fail with its error and change nothing.
func testEnded(t *testing.T, newEngine NewEngine) {
	cfg := testModels()[2].cfg
	e := openEngine(t, newEngine, cfg)
	other := openEngine(t, newEngine, cfg)
	giveWeights(t, other, randomWeights(other, 5))
	dir, _ := exportEngine(t, other, gpu.ExportOptions{})
	_, err := other.SaveOptimizer(t.Context(), dir)
	require.NoError(t, err)
	want := engineWeights(t, e)
	b := packedBatch(rand.New(rand.NewPCG(16, 16)), cfg.VocabSize, 9)
	ended, end := context.WithCancel(t.Context())
	end()
	for name, call := range map[string]func() error{
		"evaluate": func() error {
			return e.Evaluate(ended, []*gpu.Batch{b}, func(int, *gpu.Outputs) error { return nil })
		},
		"accumulate": func() error {
			return e.Accumulate(ended, []*gpu.Batch{b}, func(int, *gpu.Outputs) (*gpu.Gradients, error) { return nil, nil })
		},
		"step": func() error {
			_, err := e.Step(ended, gpu.StepOptions{Beta2: 0.5, Epsilon: 1})
			return err
		},
		"import":         func() error { return e.Import(ended, dir) },
		"load optimizer": func() error { return e.LoadOptimizer(ended, dir, 0) },
		"save optimizer": func() error {
			_, err := e.SaveOptimizer(ended, t.TempDir())
			return err
		},
		"export": func() error {
			pending, err := e.Export(ended, t.TempDir(), gpu.ExportOptions{})
			if err == nil {
				_, err = pending.Wait(ended)
			}
			return err
		},
	} {
		err := call()
		require.ErrorIs(t, err, context.Canceled, name)
		_, partly := errors.AsType[*gpu.PartError](err)
		require.False(t, partly, "%s: nobody's rows are at fault", name)
	}
	require.NoError(t, e.Discard(t.Context()))
	require.Equal(t, want, engineWeights(t, e))
}
