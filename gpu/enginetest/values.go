package enginetest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

// testValuesOnly checks that a critic is the same whether or not the log-probabilities are asked for as well.
func testValuesOnly(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	e := openEngine(t, newEngine, cfg)
	r := rand.New(rand.NewPCG(12, 12))
	b := packedBatch(r, cfg.VocabSize, 9, 70, 1, 33)
	alone := *b
	alone.ValuesOnly = true
	if !cfg.ValueHead {
		err := e.Evaluate(t.Context(), []*gpu.Batch{&alone}, func(int, *gpu.Outputs) error { return nil })
		require.ErrorContains(t, err, "value head")
		return
	}
	up := &gpu.Gradients{Values: gradientsFor(r, b, true).Values}
	whole := accumulatePart(t, e, b, up)
	want := readGradient(t, e)
	got := accumulatePart(t, e, &alone, up)
	require.Nil(t, got.Logprobs)
	require.Nil(t, got.Entropies)
	require.Nil(t, got.ProbSquares)
	require.Equal(t, whole.Values, got.Values)
	require.Equal(t, want, readGradient(t, e))
	require.Equal(t, got, partOutputs(t, e, &alone))
	require.Error(t, e.Accumulate(t.Context(), []*gpu.Batch{&alone}, func(int, *gpu.Outputs) (*gpu.Gradients, error) {
		return gradientsFor(r, b, true), nil
	}), "there are no log-probabilities")
	require.Equal(t, whole, partOutputs(t, e, b), "the next batch has them again")
}

// testDetached checks that a detached gradient reaches the value head, and nothing below it.
func testDetached(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	if !cfg.ValueHead {
		return
	}
	e := openEngine(t, newEngine, cfg)
	r := rand.New(rand.NewPCG(13, 13))
	b := packedBatch(r, cfg.VocabSize, 9, 70)
	up := gradientsFor(r, b, true)
	backward := func(g *gpu.Gradients) map[string][]float32 {
		accumulatePart(t, e, b, g)
		return readGradient(t, e)
	}
	whole := backward(up)
	policy := backward(&gpu.Gradients{Logprobs: up.Logprobs, Entropies: up.Entropies})
	values := backward(&gpu.Gradients{Values: up.Values, Detached: true})
	up.Detached = true
	for name, both := range backward(up) {
		if name == gpu.ValueHeadTensor {
			require.Equal(t, whole[name], both)
			require.Equal(t, whole[name], values[name])
			continue
		}
		require.Equal(t, policy[name], both, name)
		require.Equal(t, make([]float32, len(both)), values[name], name)
	}
}
