package torch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/samplertest"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/hf"
)

// The consumers' own contract, over the decoder as a run uses it: the first version comes as weights, those after it as folders.
func TestSamplerKeepsTheContract(t *testing.T) {
	needPython(t)
	needTime(t)
	cfg := families()["qwen3"]
	cfg.ValueHead = false
	versions := map[int64]string{}
	for v := range int64(8) {
		versions[v] = writtenFrom(t, cfg, uint64(20+v))
	}
	load := func(version int64) *gpu.Weights {
		model, err := hf.Load(versions[version%8])
		require.NoError(t, err)
		return model.Weights
	}
	samplertest.Run(t, func(*testing.T) *samplertest.Rig {
		c := consumers.DefaultConfig()
		c.Slots = 16
		b := backend(1)
		b.Config.Deterministic = false
		return &samplertest.Rig{
			Sampler: consumers.NewBatcher(c, b.NewDecoder, nil), Config: cfg, Reproduces: true,
			Snapshot: func(version int64) consumers.Snapshot {
				if version == 0 {
					return consumers.Snapshot{Config: cfg, Weights: load(0)}
				}
				return consumers.Snapshot{Version: version, Config: cfg, Dir: versions[version%8]}
			},
			Logprobs: func(version int64, tokens []int32, from int, temperature float32) []float32 {
				logits := enginetest.NewReference(cfg, load(version)).Logits(tokens)
				var out []float32
				for i := from; i < len(tokens); i++ {
					if temperature == 0 {
						temperature = 1
					}
					out = append(out, float32(enginetest.LogSoftmax(logits[i-1], float64(temperature))[tokens[i]]))
				}
				return out
			},
		}
	})
}
