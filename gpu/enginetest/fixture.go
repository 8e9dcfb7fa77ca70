package enginetest

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// NewEngine makes the engine under test. The suite closes it.
type NewEngine func(t testing.TB, cfg gpu.Config) gpu.Engine

// model is a configuration of the suite.
type model struct {
	name string
	cfg  gpu.Config
}

// testModels cover the settings that a configuration can vary: grouped queries, a head width of its own, tied and untied heads,
// a value head; and the families' settings: biases, norms of the heads, scaled angles, the widest heads.
func testModels() []model {
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
	all := []model{{"tied", base}, {"grouped untied", grouped}, {"value head", value}, {"wide", wide}}
	return append(all, familyModels()...)
}

// familyModels are small models of each family.
func familyModels() []model {
	qwen2 := gpu.Config{
		ModelType: "qwen2", VocabSize: 29, HiddenSize: 24, IntermediateSize: 28, NumLayers: 2, NumHeads: 4, NumKVHeads: 2,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 256, QKVBias: true, ValueHead: true,
	}
	qwen3 := qwen2
	qwen3.ModelType, qwen3.QKVBias, qwen3.QKNorm, qwen3.HeadDim, qwen3.TieEmbeddings = "qwen3", false, true, 10, false
	llama := qwen2
	// Within 64 positions the first pair turns more than 4 times, the last three less than once.
	llama.ModelType, llama.QKVBias, llama.HeadDim, llama.ValueHead, llama.RopeTheta = "llama", false, 12, false, 500
	llama.RopeScaling = &gpu.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 64}
	broad := qwen3
	broad.NumLayers, broad.NumHeads, broad.NumKVHeads, broad.HeadDim, broad.TieEmbeddings = 1, 2, 1, 256, true
	return []model{{"qwen2", qwen2}, {"qwen3", qwen3}, {"llama3", llama}, {"heads of 256", broad}}
}

// openEngine makes an engine with random weights in every tensor, norms included.
func openEngine(t testing.TB, newEngine NewEngine, cfg gpu.Config) gpu.Engine {
	t.Helper()
	e := newEngine(t, cfg)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	giveWeights(t, e, randomWeights(e, 1))
	return e
}

func randomWeights(e gpu.Engine, seed uint64) *gpu.Weights { return drawWeights(e.Config(), seed) }

// drawWeights draws every tensor of a model, norms included.
func drawWeights(cfg gpu.Config, seed uint64) *gpu.Weights {
	w := &gpu.Weights{Tensors: cfg.Layout()}
	r := rand.New(rand.NewPCG(seed, 7))
	for i := range w.Tensors {
		x := &w.Tensors[i]
		x.Data = make([]float32, x.Elements())
		for i := range x.Data {
			x.Data[i] = float32(r.NormFloat64() * 0.25)
			if strings.Contains(x.Name, "norm") {
				x.Data[i] += 1
			}
		}
	}
	return w
}

// giveWeights imports weights.
func giveWeights(t testing.TB, e gpu.Engine, w *gpu.Weights) {
	t.Helper()
	dir := t.TempDir()
	_, err := hf.Export(t.Context(), dir, e.Config(), w.Tensors, gpu.ExportOptions{})
	require.NoError(t, err)
	require.NoError(t, e.Import(t.Context(), dir))
}

// exportEngine writes an engine's weights into a new folder.
func exportEngine(t testing.TB, e gpu.Engine, o gpu.ExportOptions) (dir string, files []gpu.File) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "model")
	pending, err := e.Export(t.Context(), dir, o)
	require.NoError(t, err)
	files, err = pending.Wait(t.Context())
	require.NoError(t, err)
	return dir, files
}

// engineWeights are an engine's as it exports them.
func engineWeights(t testing.TB, e gpu.Engine) *gpu.Weights {
	t.Helper()
	dir, _ := exportEngine(t, e, gpu.ExportOptions{})
	m, err := hf.Load(dir)
	require.NoError(t, err)
	return m.Weights
}

// engineMoments are an engine's as it saves them, by name, with the count of steps.
func engineMoments(t testing.TB, e gpu.Engine) (map[string][]float32, int64) {
	t.Helper()
	dir := t.TempDir()
	steps, err := e.SaveOptimizer(t.Context(), dir)
	require.NoError(t, err)
	f, err := safetensors.OpenFolder(dir, gpu.OptimizerFile)
	require.NoError(t, err)
	defer f.Close()
	out := map[string][]float32{}
	for _, x := range f.Tensors() {
		out[x.Name] = make([]float32, x.Elements())
		require.NoError(t, f.Read(t.Context(), x.Name, out[x.Name]))
	}
	return out, steps
}

// packedBatch draws a batch of sequences of the given lengths, two thirds of its tokens masked in.
func packedBatch(r *rand.Rand, vocab int, lengths ...int) *gpu.Batch {
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

// readGradient reads the gathered gradient by taking a step of rate 0 with Beta1 0: the gradient is then the first moment.
func readGradient(t testing.TB, e gpu.Engine) map[string][]float32 {
	t.Helper()
	stats, err := e.Step(t.Context(), gpu.StepOptions{Beta2: 0.5, Epsilon: 1})
	require.NoError(t, err)
	require.False(t, stats.Skipped)
	all, _ := engineMoments(t, e)
	g := map[string][]float32{}
	for name, x := range all {
		if name, ok := strings.CutSuffix(name, ".m"); ok {
			g[name] = x
		}
	}
	return g
}

// partOutputs are a part's outputs, copied: they are valid only during the call.
func partOutputs(t testing.TB, e gpu.Engine, b *gpu.Batch) *gpu.Outputs {
	t.Helper()
	var out *gpu.Outputs
	require.NoError(t, e.Evaluate(t.Context(), []*gpu.Batch{b}, func(_ int, o *gpu.Outputs) error {
		out = copyFloats(o)
		return nil
	}))
	return out
}

// accumulatePart returns a part's outputs and gathers its gradient.
func accumulatePart(t testing.TB, e gpu.Engine, b *gpu.Batch, g *gpu.Gradients) *gpu.Outputs {
	t.Helper()
	var out *gpu.Outputs
	require.NoError(t, e.Accumulate(t.Context(), []*gpu.Batch{b}, func(_ int, o *gpu.Outputs) (*gpu.Gradients, error) {
		out = copyFloats(o)
		return g, nil
	}))
	return out
}

func copyFloats(o *gpu.Outputs) *gpu.Outputs {
	return &gpu.Outputs{
		Logprobs: slices.Clone(o.Logprobs), Entropies: slices.Clone(o.Entropies),
		ProbSquares: slices.Clone(o.ProbSquares), Values: slices.Clone(o.Values),
	}
}
