package native_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/native/kernel"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// rounded are weights whose matrices are bfloat16, as a forward pass in it reads them.
func rounded(t *testing.T, e *native.Engine) *gpu.Weights {
	t.Helper()
	w, err := e.Weights(t.Context())
	require.NoError(t, err)
	for _, x := range w.Tensors {
		if len(x.Shape) == 2 && x.Name != gpu.ValueHeadTensor {
			for i, v := range x.Data {
				x.Data[i] = safetensors.RoundBF16(v)
			}
		}
	}
	return w
}

// A forward pass in bfloat16 is that of the rounded weights, bit for bit; that of the masters is near.
func TestAForwardPassInBFloat16IsThatOfTheRoundedWeights(t *testing.T) {
	for name, cfg := range families() {
		t.Run(name, func(t *testing.T) {
			b := randomBatch(300, 140, 3, 50)
			e := newEngine(t, cfg, native.Options{Seed: 3, DType: gpu.BFloat16})
			plain := newEngine(t, cfg, native.Options{Seed: 3})
			before := logprobs(t, plain, b)
			enginetest.SetWeights(t, plain, rounded(t, e))
			got := logprobs(t, e, b)
			require.Equal(t, logprobs(t, plain, b), got)
			require.NotEqual(t, before, got)
			require.InDeltaSlice(t, before, got, 0.02)
			want, err := newEngine(t, cfg, native.Options{Seed: 3}).Weights(t.Context())
			require.NoError(t, err)
			own, err := e.Weights(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, own, "the masters stay as they are")
		})
	}
}

// The masters gather steps that bfloat16 would lose, and the policy learns as one in float32 does.
func TestTrainingInBFloat16KeepsMasters(t *testing.T) {
	cfg := families()["qwen3"]
	b := randomBatch(300, 60, 3)
	score := func(o gpu.DType) (first, last float64, e *native.Engine) {
		e = newEngine(t, cfg, native.Options{Seed: 3, DType: o})
		g := make([]float32, len(b.Tokens))
		for i := range g {
			g[i] = -1 / float32(len(g))
		}
		for step := range 60 {
			sum := 0.0
			for _, x := range logprobs(t, e, b) {
				sum += float64(x)
			}
			if last = sum; step == 0 {
				first = sum
			}
			require.NoError(t, e.Accumulate(t.Context(), []*gpu.Batch{b}, func(int, *gpu.Outputs) (*gpu.Gradients, error) {
				return &gpu.Gradients{Logprobs: g}, nil
			}))
			_, err := e.Step(t.Context(), gpu.StepOptions{LearningRate: 3e-3, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1})
			require.NoError(t, err)
		}
		return first, last, e
	}
	first, plain, _ := score(gpu.Float32)
	_, half, e := score(gpu.BFloat16)
	require.Greater(t, half-first, 0.9*(plain-first), "as far as in float32, within a tenth")
	require.Greater(t, plain-first, 0.3*-first, "something is learnt")

	small := gpu.StepOptions{LearningRate: 1e-7, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8}
	before, err := e.Weights(t.Context())
	require.NoError(t, err)
	sums := rounded(t, e)
	for range 3 {
		require.NoError(t, e.Accumulate(t.Context(), []*gpu.Batch{b}, func(int, *gpu.Outputs) (*gpu.Gradients, error) {
			return upstream(len(b.Tokens)), nil
		}))
		_, err := e.Step(t.Context(), small)
		require.NoError(t, err)
	}
	after, err := e.Weights(t.Context())
	require.NoError(t, err)
	moved, lost := 0, 0
	for i, x := range after.Tensors {
		for j, v := range x.Data {
			if v == before.Tensors[i].Data[j] {
				continue
			}
			if moved++; safetensors.RoundBF16(v) == safetensors.RoundBF16(sums.Tensors[i].Data[j]) {
				lost++
			}
		}
	}
	require.Positive(t, moved)
	require.Greater(t, lost, moved/2, "most of these steps are too small for bfloat16, and the masters have them")
}

func TestAnUnknownTypeOfForwardPassIsRefused(t *testing.T) {
	_, err := native.New(families()["llama"], native.Options{DType: "int8"})
	require.ErrorContains(t, err, `"int8": want float32 or bfloat16`)
	c := native.DefaultConfig()
	require.NoError(t, c.Validate())
	c.DType = "int8"
	require.ErrorContains(t, c.Validate(), "dtype")
}

// With Dot a decoder rounds what it multiplies where the processor multiplies pairs; where it does not, nothing changes.
func TestADecoderWithDotSamplesNearly(t *testing.T) {
	cfg := families()["qwen2"]
	cfg.ValueHead = false
	w, err := newEngine(t, cfg, native.Options{Seed: 3}).Weights(t.Context())
	require.NoError(t, err)
	var got [2]float32
	for i, dot := range []bool{false, true} {
		d, err := native.Backend{Options: native.Options{Dot: dot}}.NewDecoder(cfg, w, gpu.DecoderOptions{Slots: 1, MaxTokens: 40, DType: gpu.BFloat16})
		require.NoError(t, err)
		slot, err := d.Open()
		require.NoError(t, err)
		out, err := d.Extend(context.Background(), []gpu.Extension{{Slot: slot, Tokens: []int32{1, 2, 3, 4, 5}, Sample: true}})
		require.NoError(t, err)
		got[i] = out[0].Logprob
	}
	require.InDelta(t, got[0], got[1], 0.05)
	// A product of 1 + 2^-10 with 1 is 1 where A is rounded to bfloat16 too.
	w1, product := kernel.NewPackedDot(1, 1), make([]float32, 1)
	w1.Repack([]float32{1})
	if kernel.MatMulPacked(product, []float32{1 + 1.0/1024}, w1, 1, false); product[0] != 1 {
		require.Equal(t, got[0], got[1])
	}
}
