package native_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

// families are the configurations of the three families.
func families() map[string]gpu.Config {
	llama := smallConfig()
	llama.NumLayers = 3
	qwen2, qwen3 := llama, llama
	qwen2.ModelType, qwen2.QKVBias = "qwen2", true
	qwen3.ModelType, qwen3.QKNorm, qwen3.HeadDim = "qwen3", true, 16
	one := llama
	one.NumLayers = 1
	return map[string]gpu.Config{"llama": llama, "qwen2": qwen2, "qwen3": qwen3, "one layer": one}
}

// Parts of several shapes, some evaluated between, leave the same bits after several steps.
func TestBlocksComputedAgainGiveTheSameGradients(t *testing.T) {
	for name, cfg := range families() {
		t.Run(name, func(t *testing.T) {
			train := func(recompute bool) ([]gpu.Tensor, []gpu.Tensor) {
				e := newEngine(t, cfg, native.Options{Seed: 3, Threads: 3, Recompute: recompute})
				parts := []*gpu.Batch{randomBatch(300, 140, 3, 200), randomBatch(300, 17), randomBatch(300, 1, 300, 90)}
				for range 2 {
					require.NoError(t, e.Evaluate(t.Context(), parts[:2], func(int, *gpu.Outputs) error { return nil }))
					require.NoError(t, e.Accumulate(t.Context(), parts, func(i int, o *gpu.Outputs) (*gpu.Gradients, error) {
						return upstream(len(parts[i].Tokens)), nil
					}))
					_, err := e.Step(t.Context(), stepOptions)
					require.NoError(t, err)
				}
				w, err := e.Weights(t.Context())
				require.NoError(t, err)
				return w.Tensors, e.Moments()
			}
			wantWeights, wantMoments := train(false)
			weights, moments := train(true)
			require.Equal(t, wantWeights, weights)
			require.Equal(t, wantMoments, moments)
		})
	}
}
