package native

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/gpu"
)

// extension asks for a sample.
func extension(temperature float32, u float64) *gpu.Extension {
	return &gpu.Extension{Sample: true, Temperature: temperature, U: u}
}

// probabilities are the distribution in float64.
func probabilities(logits []float32, temperature float64) []float64 {
	most := math.Inf(-1)
	for _, x := range logits {
		most = max(most, float64(x))
	}
	p := make([]float64, len(logits))
	var sum float64
	for i, x := range logits {
		p[i] = math.Exp((float64(x) - most) / temperature)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

func TestSampleIsTheInverseOfTheCumulativeDistribution(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.Float32Range(-40, 40), 1, 300).Draw(t, "logits")
		temperature := rapid.SampledFrom([]float32{0.01, 0.5, 1, 1.7, 100}).Draw(t, "temperature")
		u := rapid.Float64Range(0, 1-0x1p-53).Draw(t, "u")
		var s sampler
		got := s.sampleToken(logits, extension(temperature, u))
		require.NoError(t, got.Err)
		token, logprob := got.Token, got.Logprob
		p := probabilities(logits, float64(temperature))
		var below float64
		for i := range token {
			below += p[i]
		}
		require.LessOrEqual(t, below, u+1e-5)
		require.GreaterOrEqual(t, below+p[token], u-1e-5)
		require.Positive(t, p[token])
		want := math.Log(p[token])
		require.InDelta(t, want, float64(logprob), 1e-5*(1+math.Abs(want)))

		require.Equal(t, got, s.sampleToken(logits, extension(temperature, u)), "the same again")
	})
}

func TestSampleDrawsEveryTokenByItsProbability(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5))
	logits := make([]float32, 200)
	for i := range logits {
		logits[i] = 4 * r.Float32()
	}
	for _, temperature := range []float32{0.7, 1, 3} {
		p := probabilities(logits, float64(temperature))
		var s sampler
		var above float64 // cumulative probability up to and with the naive choice
		want, n := -1, 20_000
		for step := range n {
			u := (float64(step) + 0.5) / float64(n)
			for above <= u {
				want++
				above += p[want]
			}
			if above-u < 1e-5 || u-(above-p[want]) < 1e-5 {
				continue // rounding may choose the neighbour
			}
			require.Equal(t, int32(want), s.sampleToken(logits, extension(temperature, u)).Token)
		}
	}
}

func TestSampleGreedy(t *testing.T) {
	t.Parallel()
	var s sampler
	logits := []float32{1, 3, 3, -2}
	got := s.sampleToken(logits, extension(0, 0.99))
	require.NoError(t, got.Err)
	require.Equal(t, int32(1), got.Token, "the lowest of equals")
	require.InDelta(t, math.Log(probabilities(logits, 1)[1]), float64(got.Logprob), 1e-6)
	require.Nil(t, got.Top)
}

func TestSampleEdges(t *testing.T) {
	t.Parallel()
	var s sampler
	inf := float32(math.Inf(1))
	for name, logits := range map[string][]float32{
		"nan": {0, float32(math.NaN())}, "inf": {0, inf}, "-inf": {-inf, -inf},
	} {
		got := s.sampleToken(logits, extension(1, 0.5))
		require.ErrorIs(t, got.Err, gpu.ErrNotFinite, name)
		require.Equal(t, int32(-1), got.Token)
	}
	// Tokens whose probability underflows are never drawn, at either end.
	logits := make([]float32, 200)
	for i := range logits {
		logits[i] = -1000
	}
	logits[70] = 0
	for _, u := range []float64{0, 0.5, 1 - 0x1p-53} {
		require.Equal(t, gpu.Sampled{Token: 70}, s.sampleToken(logits, extension(1, u)))
	}
}

func TestTopAreTheMostLikelyTokens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Few values, so that there are equals.
		logits := rapid.SliceOfN(rapid.SampledFrom([]float32{-3, -1, 0, 0.5, 2}), 1, 40).Draw(t, "logits")
		x := extension(rapid.SampledFrom([]float32{0, 0.5, 1}).Draw(t, "temperature"), 0.3)
		x.TopLogprobs = rapid.IntRange(1, len(logits)).Draw(t, "top")
		var s sampler
		got := s.sampleToken(logits, x)
		temperature := 1.0
		if x.Temperature > 0 {
			temperature = float64(x.Temperature)
		}
		p := probabilities(logits, temperature)
		order := make([]int, len(logits))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return int(2 * (logits[b] - logits[a])) })
		require.Len(t, got.Top, x.TopLogprobs)
		for i, top := range got.Top {
			require.Equal(t, int32(order[i]), top.Token)
			require.InDelta(t, math.Log(p[order[i]]), float64(top.Logprob), 1e-5)
			if top.Token == got.Token {
				require.Equal(t, got.Logprob, top.Logprob, "the sampled token's is the same number")
			}
		}
	})
}

func BenchmarkSample(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	logits := make([]float32, 1562)
	for i := range logits {
		logits[i] = 8 * r.Float32()
	}
	var s sampler
	x := extension(1, 0)
	for b.Loop() {
		x.U = r.Float64()
		if got := s.sampleToken(logits, x); got.Err != nil {
			b.Fatal(got.Err)
		}
	}
}
