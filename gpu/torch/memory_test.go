package torch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

// The memory that is stated is that of each copy that the worker makes.
func TestMemoryIsStatedByPart(t *testing.T) {
	t.Parallel()
	cfg := gpu.Config{
		ModelType: "qwen2", VocabSize: 151_936, HiddenSize: 896, IntermediateSize: 4864, NumLayers: 24, NumHeads: 14, NumKVHeads: 2,
		RopeTheta: 1e6, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 32_768, QKVBias: true,
	}
	const all = 494_032_768
	parts := func(m gpu.Memory) map[string]int64 {
		out := map[string]int64{}
		for _, p := range m {
			out[p.Name] = p.Bytes
		}
		return out
	}
	with := func(change func(*Backend)) Backend {
		b := Backend{Config: DefaultConfig()}
		b.Config.Device = "cpu"
		change(&b)
		return b
	}
	plain := parts(with(func(*Backend) {}).TrainingMemory(cfg, 1024))
	require.EqualValues(t, 4*all, plain["weights"])
	require.EqualValues(t, 4*all, plain["gradients"])
	require.EqualValues(t, 8*all, plain["moments"])
	require.NotContains(t, plain, "weights for the products")
	require.Positive(t, plain["activations"])

	half := parts(with(func(b *Backend) { b.Config.DType = "bfloat16" }).TrainingMemory(cfg, 1024))
	require.EqualValues(t, 4*all, half["weights"])
	require.EqualValues(t, 2*all, half["weights for the products"])
	require.Less(t, half["activations"], plain["activations"])
	bare := parts(with(func(b *Backend) { b.Config.DType, b.Config.Masters = "bfloat16", false }).TrainingMemory(cfg, 1024))
	require.EqualValues(t, 2*all, bare["weights"])
	require.NotContains(t, bare, "weights for the products")

	two := parts(with(func(b *Backend) { b.Config.Ranks, b.Config.Shard = 2, "none" }).TrainingMemory(cfg, 1024))
	require.EqualValues(t, 8*all, two["weights"], "each rank has all")
	require.Equal(t, 2*plain["activations"], two["activations"])
	cut := parts(with(func(b *Backend) { b.Config.Ranks, b.Config.Shard = 2, "fsdp" }).TrainingMemory(cfg, 1024))
	require.Equal(t, plain["moments"], cut["moments"], "the ranks share them")

	low := with(func(b *Backend) { b.LoRA = native.DefaultLoRA(); b.LoRA.Rank = 16 })
	adapters := parts(low.TrainingMemory(cfg, 1024))
	require.Less(t, adapters["moments"], plain["moments"]/20)
	require.Greater(t, adapters["weights"], plain["weights"])
	recompute := parts(with(func(b *Backend) { b.Config.Recompute = true }).TrainingMemory(cfg, 4096))
	require.Less(t, recompute["activations"], parts(with(func(*Backend) {}).TrainingMemory(cfg, 4096))["activations"]/2)
	scores := parts(with(func(b *Backend) { b.Config.Attention = "plain" }).TrainingMemory(cfg, 1024))
	require.EqualValues(t, 24*2*4*14*1024*1024, scores["activations"]-plain["activations"])
	bounded := with(func(b *Backend) { b.Config.MaxTokens = 128 })
	require.Equal(t, bounded.TrainingMemory(cfg, 128), bounded.TrainingMemory(cfg, 4096))

	evaluating := parts(with(func(*Backend) {}).EvaluatingMemory(cfg, 1024))
	require.EqualValues(t, 4*all, evaluating["weights"])
	require.Less(t, evaluating["activations"], plain["activations"])
	decoding := parts(with(func(*Backend) {}).DecodingMemory(cfg, gpu.DecoderOptions{}, 1000, true))
	require.EqualValues(t, 4*all, decoding["weights"])
	require.EqualValues(t, 4*all, decoding["the next version's weights"])
	require.EqualValues(t, 1000*24*2*128*4, decoding["KV cache"])

	require.False(t, with(func(*Backend) {}).OnDevice())
	gpus := with(func(b *Backend) { b.Config.Device = "cuda" })
	require.True(t, gpus.OnDevice())
	require.NotContains(t, parts(gpus.DecodingMemory(cfg, gpu.DecoderOptions{}, 1000, true)), "the next version's weights")
}
