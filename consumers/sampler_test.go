package consumers

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// softmax is the distribution in float64.
func softmax(logits []float32, temperature float64) []float64 {
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
		token, logprob, err := s.sample(logits, temperature, u)
		require.NoError(t, err)
		p := softmax(logits, float64(temperature))
		var below float64
		for i := range token {
			below += p[i]
		}
		require.LessOrEqual(t, below, u+1e-5)
		require.GreaterOrEqual(t, below+p[token], u-1e-5)
		require.Positive(t, p[token])
		want := math.Log(p[token])
		require.InDelta(t, want, float64(logprob), 1e-5*(1+math.Abs(want)))

		again, sameLogprob, err := s.sample(logits, temperature, u)
		require.NoError(t, err)
		require.Equal(t, token, again)
		require.Equal(t, logprob, sameLogprob)
	})
}

func TestSampleDrawsEveryTokenByItsProbability(t *testing.T) {
	t.Parallel()
	logits := make([]float32, 200)
	for i := range logits {
		logits[i] = float32(4 * uniform(5, i))
	}
	for _, temperature := range []float32{0.7, 1, 3} {
		p := softmax(logits, float64(temperature))
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
			token, _, err := s.sample(logits, temperature, u)
			require.NoError(t, err)
			require.Equal(t, int32(want), token)
		}
	}
}

func TestSampleGreedy(t *testing.T) {
	t.Parallel()
	var s sampler
	logits := []float32{1, 3, 3, -2}
	token, logprob, err := s.sample(logits, 0, 0.99)
	require.NoError(t, err)
	require.Equal(t, int32(1), token, "the lowest of equals")
	require.InDelta(t, math.Log(softmax(logits, 1)[1]), float64(logprob), 1e-6)
}

func TestSampleEdges(t *testing.T) {
	t.Parallel()
	var s sampler
	inf := float32(math.Inf(1))
	for name, logits := range map[string][]float32{
		"nan": {0, float32(math.NaN())}, "inf": {0, inf}, "-inf": {-inf, -inf},
	} {
		_, _, err := s.sample(logits, 1, 0.5)
		require.ErrorIs(t, err, ErrNotFinite, name)
	}
	// Tokens whose probability underflows are never drawn, at either end.
	logits := make([]float32, 200)
	for i := range logits {
		logits[i] = -1000
	}
	logits[70] = 0
	for _, u := range []float64{0, 0.5, 1 - 0x1p-53} {
		token, logprob, err := s.sample(logits, 1, u)
		require.NoError(t, err)
		require.Equal(t, int32(70), token)
		require.Zero(t, logprob)
	}
}

func TestUniformIsUniform(t *testing.T) {
	t.Parallel()
	// Seeds that follow one another and positions that do must be independent of each other: chi-squared over a
	// 16 x 16 grid of pairs has 255 degrees of freedom, standard deviation 22.6.
	for _, next := range []struct {
		name           string
		seed, position int
	}{{"next seed", 1, 0}, {"next position", 0, 1}, {"both", 1, -1}} {
		var grid [16][16]float64
		const n = 1 << 16
		for i := range n {
			seed, position := i>>8, i&255+1
			u, v := uniform(uint64(seed), position), uniform(uint64(seed+next.seed), position+next.position)
			require.True(t, u >= 0 && u < 1)
			grid[int(u*16)][int(v*16)]++
		}
		var chi2 float64
		for _, row := range grid {
			for _, x := range row {
				chi2 += (x - n/256.) * (x - n/256.) / (n / 256.)
			}
		}
		require.InDelta(t, 255, chi2, 120, next.name)
	}
}

func BenchmarkSample(b *testing.B) {
	logits := make([]float32, 1562)
	for i := range logits {
		logits[i] = float32(8 * uniform(1, i))
	}
	var s sampler
	position := 0
	for b.Loop() {
		position++
		if _, _, err := s.sample(logits, 1, uniform(3, position)); err != nil {
			b.Fatal(err)
		}
	}
}
