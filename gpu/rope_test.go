package gpu_test

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

// Llama 3.1's setting: wavelengths over 8192 are 8 times as long, those under 2048 stay, between them the two are mixed.
func TestRopeSpeedsOfLlama3(t *testing.T) {
	c := gpu.Config{HiddenSize: 128, NumHeads: 1, RopeTheta: 500000}
	plain := c.RopeSpeeds()
	require.Len(t, plain, 64)
	c.RopeScaling = &gpu.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192}
	scaled := c.RopeSpeeds()
	var slow, same, mixed int
	for j, s := range scaled {
		require.InDelta(t, math.Pow(500000, -2*float64(j)/128), plain[j], 1e-15)
		switch wavelength := 2 * math.Pi / plain[j]; {
		case wavelength > 8192:
			slow++
			require.InEpsilon(t, plain[j]/8, s, 1e-12)
		case wavelength < 2048:
			same++
			require.InEpsilon(t, plain[j], s, 1e-12)
		default:
			mixed++
			smooth := (8192/wavelength - 1) / 3
			require.InEpsilon(t, (1-smooth)*plain[j]/8+smooth*plain[j], s, 1e-12)
		}
	}
	require.NotZero(t, slow)
	require.NotZero(t, same)
	require.NotZero(t, mixed)
	require.True(t, slices.IsSortedFunc(scaled, func(a, b float64) int { return cmp.Compare(b, a) }), "the speeds fall from pair to pair")
}

func TestRopeScalingIsValidated(t *testing.T) {
	ok := gpu.Config{
		VocabSize: 4, HiddenSize: 4, IntermediateSize: 4, NumLayers: 1, NumHeads: 1, NumKVHeads: 1, MaxPositions: 8,
		RopeTheta: 1e4, RMSNormEps: 1e-6,
	}
	require.NoError(t, ok.Validate())
	for name, r := range map[string]gpu.RopeScaling{
		"factor is 0.5":                         {Factor: 0.5, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8},
		"factor is NaN":                         {Factor: math.NaN(), LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8},
		"low_freq_factor 4":                     {Factor: 8, LowFreqFactor: 4, HighFreqFactor: 4, OriginalMaxPositions: 8},
		"original_max_position_embeddings is 0": {Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4},
	} {
		c := ok
		c.RopeScaling = &r
		require.ErrorContains(t, c.Validate(), name)
	}
}

// The order is Hugging Face's; a family's own tensors lie beside what they belong to.
func TestTheLayoutHasTheFamiliesTensors(t *testing.T) {
	c := gpu.Config{VocabSize: 8, HiddenSize: 4, IntermediateSize: 6, NumLayers: 1, NumHeads: 2, NumKVHeads: 1, HeadDim: 6, TieEmbeddings: true}
	names := func(c gpu.Config) []string {
		var out []string
		for _, t := range c.Layout() {
			out = append(out, t.Name)
		}
		return out
	}
	llama := names(c)
	c.QKVBias = true
	qwen2 := names(c)
	c.QKVBias, c.QKNorm = false, true
	qwen3 := names(c)
	const at = "model.layers.0.self_attn."
	require.Equal(t, llama, slices.DeleteFunc(slices.Clone(qwen2), func(n string) bool {
		return n == at+"q_proj.bias" || n == at+"k_proj.bias" || n == at+"v_proj.bias"
	}))
	require.Len(t, qwen2, len(llama)+3)
	require.Equal(t, llama, slices.DeleteFunc(slices.Clone(qwen3), func(n string) bool { return n == at+"q_norm.weight" || n == at+"k_norm.weight" }))
	require.Len(t, qwen3, len(llama)+2)
	for _, x := range c.Layout() {
		switch x.Name {
		case at + "q_norm.weight":
			require.Equal(t, []int{6}, x.Shape)
		case at + "q_proj.weight":
			require.Equal(t, []int{12, 4}, x.Shape)
		}
	}
}
