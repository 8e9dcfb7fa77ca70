package torch_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/fulltest"
)

// families are models of the kinds that are published: Llama 3 with scaled angles, Qwen2 with biases, Qwen3 with norms of
// queries and keys.
func families() map[string]gpu.Config {
	base := gpu.Config{
		ModelType: "llama", VocabSize: 61, HiddenSize: 32, IntermediateSize: 48, NumLayers: 2, NumHeads: 4, NumKVHeads: 2,
		RopeTheta: 1e4, RMSNormEps: 1e-6, MaxPositions: 256, BOSToken: -1, EOSToken: -1, ValueHead: true,
	}
	llama, qwen2, qwen3 := base, base, base
	llama.RopeScaling = &gpu.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 64}
	qwen2.ModelType, qwen2.QKVBias, qwen2.TieEmbeddings = "qwen2", true, true
	qwen3.ModelType, qwen3.QKNorm, qwen3.HeadDim = "qwen3", true, 12
	return map[string]gpu.Config{"llama": llama, "qwen2": qwen2, "qwen3": qwen3}
}

// someFamilies are all of them, or, in a short run, the named one: each costs processes that import PyTorch.
func someFamilies(one string) map[string]gpu.Config {
	all := families()
	if !fulltest.Enabled() {
		return map[string]gpu.Config{one: all[one]}
	}
	return all
}

// written is a folder with weights of a model, every tensor drawn.
func written(t testing.TB, cfg gpu.Config) string {
	t.Helper()
	return writtenFrom(t, cfg, 1)
}

func writtenFrom(t testing.TB, cfg gpu.Config, seed uint64) string {
	t.Helper()
	tensors := cfg.Layout()
	r := rand.New(rand.NewPCG(seed, 7))
	for i := range tensors {
		tensors[i].Data = make([]float32, tensors[i].Elements())
		for j := range tensors[i].Data {
			tensors[i].Data[j] = float32(r.NormFloat64() * 0.25)
			if len(tensors[i].Shape) == 1 {
				tensors[i].Data[j]++
			}
		}
	}
	dir := filepath.Join(t.TempDir(), "model")
	_, err := hf.Export(t.Context(), dir, cfg, tensors, gpu.ExportOptions{})
	require.NoError(t, err)
	return dir
}

// someParts are parts of several sequences, one of them empty, with a gradient for each output.
func someParts(cfg gpu.Config) ([]*gpu.Batch, []*gpu.Gradients) {
	r := rand.New(rand.NewPCG(3, 3))
	var parts []*gpu.Batch
	var up []*gpu.Gradients
	for _, lengths := range [][]int{{40, 3, 1}, {9}, {}, {70, 0, 12}, {5, 5}} {
		b := &gpu.Batch{Offsets: []int{0}}
		for _, n := range lengths {
			for range n {
				b.Tokens, b.Mask = append(b.Tokens, int32(r.IntN(cfg.VocabSize))), append(b.Mask, uint8(min(1, r.IntN(3))))
			}
			b.Offsets, b.Temperature = append(b.Offsets, len(b.Tokens)), append(b.Temperature, 0.5+r.Float32())
		}
		draw := func() []float32 {
			g := make([]float32, len(b.Tokens))
			for i := range g {
				g[i] = float32(r.NormFloat64())
			}
			return g
		}
		parts, up = append(parts, b), append(up, &gpu.Gradients{Logprobs: draw(), Entropies: draw(), Values: draw()})
	}
	return parts, up
}

// outcome is what an engine made of the parts: outputs, the norm of the gradient, and the weights after a step.
type outcome struct {
	outputs []*gpu.Outputs
	norm    float64
	weights *gpu.Weights
	moments []byte
}

var stepOptions = gpu.StepOptions{
	LearningRate: 1e-2, ValueLearningRate: 2e-2, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-4, WeightDecay: 0.01, ClipNorm: 1,
}

// train takes two steps on parts and tells what came of it.
func train(t testing.TB, e gpu.Engine, folder string, parts []*gpu.Batch, up []*gpu.Gradients) (out outcome) {
	t.Helper()
	require.NoError(t, e.Import(t.Context(), folder))
	for range 2 {
		out.outputs = nil
		require.NoError(t, e.Accumulate(t.Context(), parts, func(i int, o *gpu.Outputs) (*gpu.Gradients, error) {
			out.outputs = append(out.outputs, copied(o))
			return up[i], nil
		}))
		stats, err := e.Step(t.Context(), stepOptions)
		require.NoError(t, err)
		require.False(t, stats.Skipped)
		out.norm = stats.GradNorm
	}
	dir := filepath.Join(t.TempDir(), "after")
	pending, err := e.Export(t.Context(), dir, gpu.ExportOptions{ShardBytes: 4000})
	require.NoError(t, err)
	_, err = pending.Wait(t.Context())
	require.NoError(t, err)
	model, err := hf.Load(dir)
	require.NoError(t, err)
	out.weights = model.Weights
	steps, err := e.SaveOptimizer(t.Context(), dir)
	require.NoError(t, err)
	require.EqualValues(t, 2, steps)
	out.moments, err = os.ReadFile(filepath.Join(dir, gpu.OptimizerFile))
	require.NoError(t, err)
	return out
}

func near(t testing.TB, what string, want, got []float32, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		require.InDelta(t, want[i], got[i], tolerance*max(1, float64(max(want[i], -want[i]))), "%s[%d]", what, i)
	}
}

// copied are outputs that outlive the call they are lent for.
func copied(o *gpu.Outputs) *gpu.Outputs {
	return &gpu.Outputs{
		Logprobs: slices.Clone(o.Logprobs), Entropies: slices.Clone(o.Entropies),
		ProbSquares: slices.Clone(o.ProbSquares), Values: slices.Clone(o.Values),
	}
}

func nearOutputs(t testing.TB, want, got []*gpu.Outputs, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, x := range want {
		y := got[i]
		near(t, fmt.Sprintf("part %d: log-probabilities", i), x.Logprobs, y.Logprobs, tolerance)
		near(t, fmt.Sprintf("part %d: entropies", i), x.Entropies, y.Entropies, tolerance)
		near(t, fmt.Sprintf("part %d: sums of squares", i), x.ProbSquares, y.ProbSquares, tolerance)
		near(t, fmt.Sprintf("part %d: values", i), x.Values, y.Values, tolerance)
	}
}

func (o outcome) near(t testing.TB, other outcome, tolerance float64) {
	t.Helper()
	nearOutputs(t, o.outputs, other.outputs, tolerance)
	require.InEpsilon(t, o.norm, other.norm, tolerance)
	for i, x := range o.weights.Tensors {
		near(t, x.Name, x.Data, other.weights.Tensors[i].Data, tolerance)
	}
}

// Two steps of one rank, of two ranks and of the engine in Go, from the same weights on the same parts.
func TestRanksAndEnginesAgreeOnEveryFamily(t *testing.T) {
	needPython(t)
	for name, cfg := range someFamilies("qwen3") {
		t.Run(name, func(t *testing.T) {
			folder := written(t, cfg)
			parts, up := someParts(cfg)
			inGo, err := native.New(cfg, native.Options{})
			require.NoError(t, err)
			want := train(t, inGo, folder, parts, up)
			for ranks := 1; ranks <= 2; ranks++ {
				b := backend(ranks)
				// Packed as a run packs: bits depend on the company of a row, and no more.
				b.Config.Deterministic = false
				b.Config.Recompute = ranks == 2
				e := engineOf(t, b, cfg)
				want.near(t, train(t, e, folder, parts, up), 1e-4)
				require.Equal(t, ranks, e.Limits().Ranks)
				require.NoError(t, e.Close())
			}
		})
	}
}

// What is imported is exported as the engine in Go exports it, byte for byte, moments too.
func TestFoldersAreThoseOfTheEngineInGo(t *testing.T) {
	needPython(t)
	for name, cfg := range someFamilies("qwen2") {
		t.Run(name, func(t *testing.T) {
			folder := written(t, cfg)
			inGo, err := native.New(cfg, native.Options{})
			require.NoError(t, err)
			e := engineOf(t, backend(2), cfg)
			defer e.Close()
			for _, o := range []gpu.ExportOptions{{}, {DType: gpu.BFloat16, ShardBytes: 3000}} {
				var contents [2]map[string][]byte
				var files [2][]gpu.File
				for i, engine := range []gpu.Engine{inGo, e} {
					require.NoError(t, engine.Import(t.Context(), folder))
					dir := filepath.Join(t.TempDir(), "out")
					pending, err := engine.Export(t.Context(), dir, o)
					require.NoError(t, err)
					files[i], err = pending.Wait(t.Context())
					require.NoError(t, err)
					_, err = engine.SaveOptimizer(t.Context(), dir)
					require.NoError(t, err)
					contents[i] = map[string][]byte{}
					entries, err := os.ReadDir(dir)
					require.NoError(t, err)
					for _, x := range entries {
						contents[i][x.Name()], err = os.ReadFile(filepath.Join(dir, x.Name()))
						require.NoError(t, err)
					}
				}
				require.Equal(t, files[0], files[1])
				require.Equal(t, contents[0], contents[1])
			}
		})
	}
}
