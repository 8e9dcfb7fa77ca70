package native_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

var stepOptions = gpu.StepOptions{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.01, ClipNorm: 1}

func smallConfig() gpu.Config {
	return gpu.Config{
		ModelType: "llama", VocabSize: 300, HiddenSize: 48, IntermediateSize: 80, NumLayers: 2, NumHeads: 4, NumKVHeads: 2,
		RopeTheta: 1e4, RMSNormEps: 1e-5, TieEmbeddings: true, MaxPositions: 512, ValueHead: true,
	}
}

func newEngine(t testing.TB, cfg gpu.Config, o native.Options) *native.Engine {
	t.Helper()
	e, err := native.New(cfg, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// randomBatch is sequences of the given lengths with every other token masked in.
func randomBatch(vocab int, lengths ...int) *gpu.Batch {
	r := rand.New(rand.NewPCG(1, 2))
	b := &gpu.Batch{Offsets: []int{0}}
	for _, n := range lengths {
		for i := range n {
			b.Tokens, b.Mask = append(b.Tokens, int32(r.IntN(vocab))), append(b.Mask, uint8(i%2))
		}
		b.Offsets = append(b.Offsets, len(b.Tokens))
	}
	return b
}

func upstream(n int) *gpu.Gradients {
	return &gpu.Gradients{Logprobs: wave(n, 1), Entropies: wave(n, 2), Values: wave(n, 3)}
}

// Three steps leave the same bits.
func TestResultsDoNotDependOnTheNumberOfThreads(t *testing.T) {
	var want *gpu.Weights
	for _, threads := range []int{1, 2, 5, 8} {
		e := newEngine(t, smallConfig(), native.Options{Seed: 3, Threads: threads})
		b := randomBatch(300, 200, 3, 511, 90, 17)
		for range 3 {
			_, err := e.Forward(t.Context(), b, true)
			require.NoError(t, err)
			require.NoError(t, e.Backward(t.Context(), upstream(len(b.Tokens))))
			_, err = e.Step(t.Context(), stepOptions)
			require.NoError(t, err)
		}
		got, err := e.Weights(t.Context())
		require.NoError(t, err)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got, "%d threads", threads)
	}
}

// A vocabulary so large that the logits of the batch exceed the scratch is taken in chunks, which add up to
// what small batches give.
func TestLargeVocabularyIsTakenInChunks(t *testing.T) {
	cfg := smallConfig()
	cfg.VocabSize, cfg.HiddenSize, cfg.IntermediateSize, cfg.NumLayers, cfg.NumHeads = 40000, 16, 16, 1, 2
	e := newEngine(t, cfg, native.Options{Seed: 3})
	b := randomBatch(cfg.VocabSize, 150, 150, 150)
	up := upstream(len(b.Tokens))
	gradient := func() []gpu.Tensor {
		o := stepOptions
		o.Beta1, o.LearningRate, o.WeightDecay = 0, 0, 0
		o.ClipNorm = 0
		_, err := e.Step(t.Context(), o)
		require.NoError(t, err)
		moments := e.Moments()
		return moments[:len(moments)/2]
	}
	backward := func(lo, hi int, part *gpu.Batch) []float32 {
		out, err := e.Forward(t.Context(), part, true)
		require.NoError(t, err)
		require.NoError(t, e.Backward(t.Context(), &gpu.Gradients{
			Logprobs: up.Logprobs[lo:hi], Entropies: up.Entropies[lo:hi], Values: up.Values[lo:hi],
		}))
		return append([]float32(nil), out.Logprobs...)
	}
	all := backward(0, len(b.Tokens), b)
	want := gradient()
	var parts []float32
	for s := range 3 {
		lo, hi := b.Offsets[s], b.Offsets[s+1]
		parts = append(parts, backward(lo, hi, &gpu.Batch{Tokens: b.Tokens[lo:hi], Offsets: []int{0, hi - lo}, Mask: b.Mask[lo:hi]})...)
	}
	require.Equal(t, all, parts)
	for i, got := range gradient() {
		require.InDeltaSlice(t, want[i].Data, got.Data, 1e-4, got.Name)
	}
}

func TestStartingWeights(t *testing.T) {
	cfg := smallConfig()
	cfg.HiddenSize, cfg.NumHeads, cfg.NumKVHeads = 64, 4, 4
	weights := func(o native.Options) map[string]gpu.Tensor {
		w, err := newEngine(t, cfg, o).Weights(t.Context())
		require.NoError(t, err)
		byName := map[string]gpu.Tensor{}
		for _, x := range w.Tensors {
			byName[x.Name] = x
		}
		return byName
	}
	variance := func(x gpu.Tensor) float64 {
		sum := 0.0
		for _, v := range x.Data {
			sum += float64(v) * float64(v)
		}
		return sum / float64(len(x.Data))
	}
	plain := weights(native.Options{Seed: 7})
	require.Equal(t, plain, weights(native.Options{Seed: 7, Threads: 3}))
	require.NotEqual(t, plain, weights(native.Options{Seed: 8}))
	require.InEpsilon(t, 1.0/64, variance(plain["model.layers.0.self_attn.q_proj.weight"]), 0.1)
	require.InEpsilon(t, 1.0/80/4, variance(plain["model.layers.1.mlp.down_proj.weight"]), 0.1)
	require.InEpsilon(t, 1.0, variance(plain["model.norm.weight"]), 1e-6)
	require.Zero(t, variance(plain["value_head.weight"]))

	cfg.InitStd = 0.02
	demo := weights(native.Options{Seed: 7, Init: native.Init{EmbeddingStd: 0.4, OutputFromValue: 0.7}})
	require.InEpsilon(t, 0.16, variance(demo["model.embed_tokens.weight"]), 0.1)
	require.InEpsilon(t, 0.0004, variance(demo["model.layers.1.mlp.down_proj.weight"]), 0.1)
	value, output := demo["model.layers.1.self_attn.v_proj.weight"].Data, demo["model.layers.1.self_attn.o_proj.weight"].Data
	for i := range 64 {
		for j := range 64 {
			require.Equal(t, 0.7*value[j*64+i], output[i*64+j])
		}
	}

	_, err := native.New(cfg, native.Options{Init: native.Init{EmbeddingStd: -1}})
	require.ErrorContains(t, err, "init.embedding_std")
	cfg.VocabSize = 0
	_, err = native.New(cfg, native.Options{})
	require.ErrorContains(t, err, "vocab_size")
}
