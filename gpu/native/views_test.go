package native

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

// Weights that are read where they are give the bits of weights that are laid out, before and after a step changes them.
func TestWeightsReadInPlaceGiveTheSameBits(t *testing.T) {
	for name, cfg := range map[string]gpu.Config{
		"tied": {
			VocabSize: 300, HiddenSize: 40, IntermediateSize: 70, NumLayers: 2, NumHeads: 4, NumKVHeads: 2, HeadDim: 12, TieEmbeddings: true,
			RopeTheta: 1e4, RMSNormEps: 1e-6, MaxPositions: 512, QKVBias: true, ValueHead: true,
		},
		"wide": {
			VocabSize: 40_000, HiddenSize: 24, IntermediateSize: 30, NumLayers: 1, NumHeads: 2, NumKVHeads: 1,
			RopeTheta: 1e4, RMSNormEps: 1e-6, MaxPositions: 512, QKNorm: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &gpu.Batch{Tokens: make([]int32, 330), Offsets: []int{0, 150, 330}, Mask: make([]uint8, 330)}
			up := make([]float32, 330)
			for i := range b.Tokens {
				b.Tokens[i], b.Mask[i], up[i] = int32(i*i%300), 1, float32(i%5)-2
			}
			train := func(inPlace bool) (logprobs []float32, weights []gpu.Tensor) {
				e, err := New(cfg, Options{Seed: 2, Threads: 3})
				require.NoError(t, err)
				for range 2 {
					if inPlace {
						e.fast = new(forwardWeights)
						e.fast.viewMatrices(&e.layout, e.w)
						e.stale = false
					}
					o, err := e.Forward(t.Context(), b, true)
					require.NoError(t, err)
					logprobs = append(logprobs, slices.Clone(o.Logprobs)...)
					require.NoError(t, e.Backward(t.Context(), &gpu.Gradients{Logprobs: up, Entropies: up}))
					_, err = e.Step(t.Context(), gpu.StepOptions{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1})
					require.NoError(t, err)
				}
				return logprobs, e.copyTensors(e.data, "")
			}
			wantLogprobs, want := train(false)
			logprobs, got := train(true)
			require.Equal(t, wantLogprobs, logprobs)
			require.Equal(t, want, got)
		})
	}
}
