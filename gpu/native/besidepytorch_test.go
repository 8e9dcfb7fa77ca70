package native_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

// besideShapes are those of docs/benchmarks/beside_pytorch.py: the widths of small models, and that of Qwen2.5-0.5B with two of its blocks.
func besideShapes() []shape {
	all := shapes()[:2]
	all[0].seqs, all[1].seqs = 16, 16
	wide := halfBillion()
	wide.VocabSize, wide.NumLayers, wide.QKVBias, wide.ModelType = 512, 2, false, "llama"
	return append(all, shape{"d896", wide, 4, 128, 1})
}

// BenchmarkBesidePyTorch is a training step, and sampling by 16 slots over contexts of 16 to 64 tokens, on one thread.
// docs/benchmarks/beside_pytorch.py runs it in turn with PyTorch's.
func BenchmarkBesidePyTorch(b *testing.B) {
	for _, s := range besideShapes() {
		for _, dtype := range []gpu.DType{gpu.Float32, gpu.BFloat16} {
			b.Run(fmt.Sprintf("train/%s/%s", s.name, dtype), func(b *testing.B) { besideTrain(b, s, dtype) })
			b.Run(fmt.Sprintf("decode/%s/%s", s.name, dtype), func(b *testing.B) { besideDecode(b, s, dtype) })
		}
	}
}

func besideTrain(b *testing.B, s shape, dtype gpu.DType) {
	e, err := native.New(s.cfg, native.Options{Seed: 1, DType: dtype, Dot: dtype == gpu.BFloat16, Threads: 1})
	require.NoError(b, err)
	batch := s.batch()
	g := &gpu.Gradients{Logprobs: make([]float32, len(batch.Tokens))}
	for i := range g.Logprobs {
		g.Logprobs[i] = -1 / float32(len(batch.Tokens))
	}
	step := func() {
		require.NoError(b, e.Accumulate(b.Context(), []*gpu.Batch{batch}, func(int, *gpu.Outputs) (*gpu.Gradients, error) { return g, nil }))
		_, err := e.Step(b.Context(), gpu.StepOptions{LearningRate: 1e-4, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1})
		require.NoError(b, err)
	}
	step()
	before := usage(b)
	for range b.N {
		step()
	}
	report(b, len(batch.Tokens), before)
}

func besideDecode(b *testing.B, s shape, dtype gpu.DType) {
	const slots, steps = 16, 48
	w, err := s.engine(b).Weights(b.Context())
	require.NoError(b, err)
	d, err := native.NewDecoder(s.cfg, w, gpu.DecoderOptions{Slots: slots, MaxTokens: 128, DType: dtype}, 1)
	require.NoError(b, err)
	in := make([]gpu.Extension, slots)
	for i := range in {
		slot, err := d.Open()
		require.NoError(b, err)
		in[i] = gpu.Extension{Slot: slot, Sample: true, Temperature: 1, U: float64(i) / slots}
	}
	sample := func() {
		for i := range in {
			d.Truncate(in[i].Slot, 0)
			in[i].Tokens = make([]int32, 16)
		}
		for range steps {
			_, err := d.Extend(b.Context(), in)
			require.NoError(b, err)
			for i := range in {
				in[i].Tokens = []int32{int32(i)}
			}
		}
	}
	sample()
	before := usage(b)
	for range b.N {
		sample()
	}
	report(b, slots*steps, before)
}
