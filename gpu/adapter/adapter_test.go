package adapter_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/adapter"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/safetensors"
)

func config() gpu.Config {
	return gpu.Config{
		ModelType: "qwen2", VocabSize: 60, HiddenSize: 48, IntermediateSize: 80, NumLayers: 2, NumHeads: 4, NumKVHeads: 2,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 64, QKVBias: true, ValueHead: true,
	}
}

// engine has adapters that are not zero, on weights that are bfloat16 or not.
func engine(t *testing.T, half bool) *native.Engine {
	lora := native.DefaultLoRA()
	lora.Rank, lora.Alpha, lora.Targets = 5, 7, []string{"q_proj", "v_proj", "down_proj"}
	cfg := config()
	e, err := native.New(cfg, native.Options{Seed: 3, LoRA: lora, Threads: 2})
	require.NoError(t, err)
	w, err := e.Weights(t.Context())
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	for _, x := range w.Tensors {
		for i := range x.Data {
			if x.Data[i] = r.Float32() - 0.5; half {
				x.Data[i] = safetensors.RoundBF16(x.Data[i])
			}
		}
	}
	enginetest.SetWeights(t, e, w)
	step := gpu.StepOptions{LearningRate: 0.05, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8}
	b := &gpu.Batch{Tokens: []int32{1, 5, 9, 30, 2, 17}, Offsets: []int{0, 6}, Mask: []uint8{0, 1, 1, 1, 1, 1}}
	for range 3 {
		require.NoError(t, e.Accumulate(t.Context(), []*gpu.Batch{b}, func(int, *gpu.Outputs) (*gpu.Gradients, error) {
			return &gpu.Gradients{Logprobs: []float32{0, -1, 1, -1, 1, -1}}, nil
		}))
		_, err := e.Step(t.Context(), step)
		require.NoError(t, err)
	}
	return e
}

func export(t *testing.T, e *native.Engine, o gpu.ExportOptions) (string, []gpu.File) {
	dir := filepath.Join(t.TempDir(), "out")
	pending, err := e.Export(t.Context(), dir, o)
	require.NoError(t, err)
	files, err := pending.Wait(t.Context())
	require.NoError(t, err)
	return dir, gpu.PolicyFiles(files)
}

func paths(dir string, files []gpu.File) (out []string) {
	for _, f := range files {
		out = append(out, filepath.Join(dir, f.Name))
	}
	return out
}

// Invariant: merged weights have the bits of the trainer's own export of them.
func TestInvariantMergedWeightsAreTheTrainersOwnExport(t *testing.T) {
	t.Parallel()
	for _, half := range []bool{true, false} {
		e := engine(t, half)
		frozen, files := export(t, e, gpu.ExportOptions{Frozen: true, ShardBytes: 9000, DType: gpu.Float32})
		base, err := safetensors.OpenFiles(paths(frozen, files))
		require.NoError(t, err)
		defer base.Close()
		require.Equal(t, map[bool]gpu.DType{true: gpu.BFloat16, false: gpu.Float32}[half], base.StoredAs("model.embed_tokens.weight"))
		require.False(t, base.Has(gpu.ValueHeadTensor))
		require.Greater(t, len(files), 3)

		dir, own := export(t, e, gpu.ExportOptions{Adapter: true})
		require.Len(t, own, 1)
		low, err := safetensors.ReadFile(filepath.Join(dir, own[0].Name))
		require.NoError(t, err)
		ad, err := adapter.New(low.Tensors, 5, 7)
		require.NoError(t, err)
		for _, dtype := range []gpu.DType{gpu.BFloat16, gpu.Float32} {
			merged, err := ad.Over(&gpu.Weights{Tensors: base.Tensors(), Source: base}, dtype)
			require.NoError(t, err)
			want, wantFiles := export(t, e, gpu.ExportOptions{DType: dtype})
			whole, err := safetensors.OpenFiles(paths(want, wantFiles))
			require.NoError(t, err)
			defer whole.Close()
			require.Equal(t, dtype, merged.Source.StoredAs("any"))
			changed := 0
			for _, x := range merged.Tensors {
				full := make([]float32, x.Elements())
				require.NoError(t, whole.Read(t.Context(), x.Name, full))
				pieces(t, merged, x, full)
				plain := make([]float32, x.Elements())
				require.NoError(t, base.Read(t.Context(), x.Name, plain))
				for i := range plain {
					if plain[i] != full[i] {
						changed++
					}
				}
			}
			require.Positive(t, changed)

			// A file of merged tensors has the bytes of the trainer's, where it has the same tensors.
			made := filepath.Join(t.TempDir(), "model.safetensors")
			require.NoError(t, safetensors.WriteFrom(t.Context(), made, merged, whole.Tensors(), dtype))
			got, err := os.ReadFile(made)
			require.NoError(t, err)
			expect, err := os.ReadFile(filepath.Join(want, wantFiles[0].Name))
			require.NoError(t, err)
			require.Equal(t, expect, got)

			// So does what is merged in memory.
			resident, err := (&gpu.Weights{Tensors: base.Tensors(), Source: base}).Resident(t.Context())
			require.NoError(t, err)
			merged, err = ad.Over(resident, dtype)
			require.NoError(t, err)
			for _, x := range merged.Tensors {
				full := make([]float32, x.Elements())
				require.NoError(t, whole.Read(t.Context(), x.Name, full))
				pieces(t, merged, x, full)
			}
			require.NoError(t, ad.Merge(resident, dtype))
			for _, x := range resident.Tensors {
				full := make([]float32, x.Elements())
				require.NoError(t, whole.Read(t.Context(), x.Name, full))
				require.Equal(t, full, x.Data)
			}
		}
	}
}

// pieces reads a tensor in pieces that do not end with rows, and whole.
func pieces(t *testing.T, w *gpu.Weights, x gpu.Tensor, want []float32) {
	t.Helper()
	for _, n := range []int{7, 50, 131, len(want)} {
		got := make([]float32, 0, len(want))
		for at := 0; at < len(want); at += n {
			part := make([]float32, min(n, len(want)-at))
			require.NoError(t, w.Source.ReadPart(t.Context(), x.Name, at, part))
			got = append(got, part...)
		}
		require.Equal(t, want, got, "%s in pieces of %d", x.Name, n)
	}
}

func TestAnAdapterThatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	one := func(name string, shape ...int) gpu.Tensor {
		x := gpu.Tensor{Name: name, Shape: shape}
		x.Data = make([]float32, x.Elements())
		return x
	}
	const name = adapter.Prefix + "model.layers.0.mlp.down_proj"
	good := []gpu.Tensor{one(name+adapter.SuffixA, 2, 6), one(name+adapter.SuffixB, 4, 2)}
	ad, err := adapter.New(good, 2, 4)
	require.NoError(t, err)
	require.NoError(t, ad.Fits([]gpu.Tensor{{Name: "model.layers.0.mlp.down_proj.weight", Shape: []int{4, 6}}}))
	for want, bad := range map[string][]gpu.Tensor{
		"lacks": {{Name: "model.layers.1.mlp.down_proj.weight", Shape: []int{4, 6}}},
		"[4 6]": {{Name: "model.layers.0.mlp.down_proj.weight", Shape: []int{6, 4}}},
	} {
		_, err := ad.Over(&gpu.Weights{Tensors: bad}, gpu.Float32)
		require.ErrorIs(t, err, gpu.ErrMismatch)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, ad.Merge(&gpu.Weights{Tensors: bad}, gpu.Float32), gpu.ErrMismatch)
	}
	_, err = ad.Over(&gpu.Weights{Tensors: []gpu.Tensor{{Name: "model.layers.0.mlp.down_proj.weight", Shape: []int{4, 6}}}}, "int8")
	require.ErrorContains(t, err, `"int8"`)
	cut := one(name+adapter.SuffixA, 2, 6)
	cut.Data = cut.Data[1:]
	for want, bad := range map[string][]gpu.Tensor{
		"one half":         good[:1],
		"given twice":      append(good[:2:2], good[1]),
		"rank is 2":        {one(name+adapter.SuffixA, 3, 6), one(name+adapter.SuffixB, 4, 3)},
		"not a tensor of":  append(good[:2:2], one("lm_head.weight", 4, 2)),
		"and 11 numbers":   {cut, good[1]},
		"has shape [2 6 1": {one(name+adapter.SuffixA, 2, 6, 1), good[1]},
	} {
		_, err := adapter.New(bad, 2, 4)
		require.ErrorIs(t, err, gpu.ErrMismatch)
		require.ErrorContains(t, err, want)
	}
	_, err = adapter.New(good, 0, 4)
	require.ErrorContains(t, err, "rank 0")
	_, err = adapter.New(good, 2, 0)
	require.ErrorContains(t, err, "alpha 0")

	ended, end := context.WithCancel(t.Context())
	end()
	err = safetensors.WriteFrom(ended, filepath.Join(t.TempDir(), "x"), &gpu.Weights{Tensors: good}, good, gpu.Float32)
	require.ErrorIs(t, err, context.Canceled)
}
