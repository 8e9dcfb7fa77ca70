package enginetest

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

// NewEngine makes the engine under test. The suite closes it.
type NewEngine func(t testing.TB, cfg gpu.Config) gpu.Engine

// model is one configuration of the suite.
type model struct {
	name string
	cfg  gpu.Config
}

// models cover what a configuration can vary: grouped queries, a head width of its own, tied and untied heads,
// a value head.
func models() []model {
	base := gpu.Config{
		ModelType: "llama", VocabSize: 23, HiddenSize: 16, IntermediateSize: 20, NumLayers: 2, NumHeads: 2,
		NumKVHeads: 2, RopeTheta: 100, RMSNormEps: 1e-5, TieEmbeddings: true, MaxPositions: 256,
	}
	grouped := base
	grouped.NumHeads, grouped.NumKVHeads, grouped.HeadDim = 4, 2, 6
	grouped.TieEmbeddings = false
	value := base
	value.NumHeads, value.NumKVHeads, value.NumLayers, value.ValueHead = 2, 1, 1, true
	wide := base
	wide.VocabSize, wide.HiddenSize, wide.IntermediateSize, wide.NumLayers = 130, 72, 100, 3
	wide.NumHeads, wide.NumKVHeads, wide.HeadDim, wide.ValueHead = 6, 3, 12, true
	wide.TieEmbeddings = false
	return []model{{"tied", base}, {"grouped untied", grouped}, {"value head", value}, {"wide", wide}}
}

// open makes an engine with random weights in every tensor, norms included.
func open(t testing.TB, newEngine NewEngine, cfg gpu.Config) gpu.Engine {
	t.Helper()
	e := newEngine(t, cfg)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.NoError(t, e.SetWeights(t.Context(), randomWeights(t, e, 1)))
	return e
}

func randomWeights(t testing.TB, e gpu.Engine, seed uint64) *gpu.Weights {
	t.Helper()
	w, err := e.Weights(t.Context())
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(seed, 7))
	for _, x := range w.Tensors {
		for i := range x.Data {
			x.Data[i] = float32(r.NormFloat64() * 0.25)
			if strings.Contains(x.Name, "norm") {
				x.Data[i] += 1
			}
		}
	}
	return w
}

// packed draws a batch of sequences of the given lengths, two thirds of its tokens masked in.
func packed(r *rand.Rand, vocab int, lengths ...int) *gpu.Batch {
	b := &gpu.Batch{Offsets: []int{0}}
	for _, n := range lengths {
		for range n {
			b.Tokens = append(b.Tokens, int32(r.IntN(vocab)))
			b.Mask = append(b.Mask, uint8(min(1, r.IntN(3))))
		}
		b.Offsets = append(b.Offsets, len(b.Tokens))
		b.Temperature = append(b.Temperature, float32(0.5+r.Float64()))
	}
	return b
}

// gradientsFor draws a gradient for every output.
func gradientsFor(r *rand.Rand, b *gpu.Batch, values bool) *gpu.Gradients {
	draw := func() []float32 {
		g := make([]float32, len(b.Tokens))
		for i := range g {
			g[i] = float32(r.NormFloat64())
		}
		return g
	}
	g := &gpu.Gradients{Logprobs: draw(), Entropies: draw()}
	if values {
		g.Values = draw()
	}
	return g
}

// gradient reads the gathered gradient by taking a step of rate 0 with Beta1 0, whose first moment it is.
func gradient(t testing.TB, e gpu.Engine) map[string][]float32 {
	t.Helper()
	stats, err := e.Step(t.Context(), gpu.StepOptions{Beta2: 0.5, Epsilon: 1})
	require.NoError(t, err)
	require.False(t, stats.Skipped)
	s, err := e.Optimizer(t.Context())
	require.NoError(t, err)
	g := map[string][]float32{}
	for _, x := range s.Moments {
		if name, ok := strings.CutSuffix(x.Name, ".m"); ok {
			g[name] = x.Data
		}
	}
	return g
}

// outputs copies what Forward returned, which is valid only until the next.
func outputs(t testing.TB, e gpu.Engine, b *gpu.Batch, keep bool) *gpu.Outputs {
	t.Helper()
	o, err := e.Forward(t.Context(), b, keep)
	require.NoError(t, err)
	clone := func(xs []float32) []float32 { return append([]float32(nil), xs...) }
	return &gpu.Outputs{
		Logprobs: clone(o.Logprobs), Entropies: clone(o.Entropies), ProbSquares: clone(o.ProbSquares), Values: clone(o.Values),
	}
}
