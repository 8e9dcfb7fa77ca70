package enginetest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

// Run checks that newEngine makes engines that keep gpu.Engine's contract.
func Run(t *testing.T, newEngine NewEngine) {
	for _, m := range testModels() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			t.Run("forward agrees with the reference", func(t *testing.T) { testForward(t, newEngine, m.cfg) })
			t.Run("backward agrees with finite differences", func(t *testing.T) { testBackward(t, newEngine, m.cfg) })
			t.Run("backward adds up", func(t *testing.T) { testAccumulation(t, newEngine, m.cfg) })
			t.Run("a sequence does not depend on its batch", func(t *testing.T) { testBatchInvariance(t, newEngine, m.cfg) })
			t.Run("a gradient is the same every time", func(t *testing.T) { testDeterminism(t, newEngine, m.cfg) })
			t.Run("values alone", func(t *testing.T) { testValuesOnly(t, newEngine, m.cfg) })
			t.Run("a detached gradient ends at the value head", func(t *testing.T) { testDetached(t, newEngine, m.cfg) })
			t.Run("parts are what they are alone", func(t *testing.T) { testParts(t, newEngine, m.cfg) })
			t.Run("weights round trip", func(t *testing.T) { testRoundTrip(t, newEngine, m.cfg) })
			t.Run("every version has the same files", func(t *testing.T) { testLayout(t, newEngine, m.cfg) })
			t.Run("folders that do not fit are refused", func(t *testing.T) { testRefusals(t, newEngine, m.cfg) })
			t.Run("optimizer round trip", func(t *testing.T) { testOptimizer(t, newEngine, m.cfg) })
		})
	}
	for _, m := range TorchModels(t) {
		t.Run("PyTorch's "+m.Name, func(t *testing.T) { testTorch(t, newEngine, &m) })
	}
	t.Run("step is AdamW", func(t *testing.T) { testStep(t, newEngine) })
	t.Run("a gradient that is not finite is skipped", func(t *testing.T) { testSkip(t, newEngine) })
	t.Run("bad batches are refused", func(t *testing.T) { testBadBatches(t, newEngine) })
	t.Run("an error leaves nothing behind", func(t *testing.T) { testErrors(t, newEngine) })
	t.Run("value heads come and go", func(t *testing.T) { testValueHeads(t, newEngine) })
	t.Run("a folder that cannot be written is named", func(t *testing.T) { testUnwritable(t, newEngine) })
	t.Run("an ended context ends a call", func(t *testing.T) { testEnded(t, newEngine) })
	t.Run("learns a sequence by heart", func(t *testing.T) { testLearning(t, newEngine) })
}

func testForward(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	e := openEngine(t, newEngine, cfg)
	w := engineWeights(t, e)
	ref := NewReference(cfg, w)
	r := rand.New(rand.NewPCG(2, 2))
	for _, lengths := range [][]int{{5}, {1, 9, 2, 0, 17}, {70, 3, 130}, {}} {
		b := packedBatch(r, cfg.VocabSize, lengths...)
		logprobs, entropies, squares, values := ref.Forward(b)
		for _, got := range []*gpu.Outputs{partOutputs(t, e, b), accumulatePart(t, e, b, nil)} {
			if got.ProbSquares != nil {
				requireNear(t, "sums of squared probabilities", squares, got.ProbSquares, 2e-4)
			}
			requireNear(t, "logprobs", logprobs, got.Logprobs, 2e-4)
			requireNear(t, "entropies", entropies, got.Entropies, 2e-4)
			requireNear(t, "values", values, got.Values, 2e-4)
		}
	}
	b := packedBatch(r, cfg.VocabSize, 6, 6)
	b.Temperature = nil
	logprobs, _, _, _ := ref.Forward(b)
	requireNear(t, "logprobs at no temperature", logprobs, partOutputs(t, e, b).Logprobs, 2e-4)
	clear(b.Mask)
	for _, x := range accumulatePart(t, e, b, &gpu.Gradients{}).Logprobs {
		require.Zero(t, x, "everything is masked")
	}
}

func requireNear(t testing.TB, what string, want []float64, got []float32, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i, w := range want {
		if d := math.Abs(w - float64(got[i])); !(d <= tolerance*math.Max(1, math.Abs(w))) {
			require.Failf(t, what, "entry %d is %g, want %g: off by %g", i, got[i], w, d)
		}
	}
}

// testBackward compares every tensor's gradient with central differences of the float64 reference, at a few elements of each
// tensor and along a random direction through all of them.
func testBackward(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	e := openEngine(t, newEngine, cfg)
	w := engineWeights(t, e)
	ref := NewReference(cfg, w)
	r := rand.New(rand.NewPCG(3, 3))
	b := packedBatch(r, cfg.VocabSize, 4, 7, 1, 3)
	up := gradientsFor(r, b, cfg.ValueHead)
	loss := func() float64 {
		logprobs, entropies, _, values := ref.Forward(b)
		sum := 0.0
		for i := range b.Tokens {
			sum += float64(up.Logprobs[i])*logprobs[i] + float64(up.Entropies[i])*entropies[i]
			if cfg.ValueHead {
				sum += float64(up.Values[i]) * values[i]
			}
		}
		return sum
	}
	accumulatePart(t, e, b, up)
	got := readGradient(t, e)
	require.Len(t, got, len(w.Tensors))

	const h = 1e-5
	for _, x := range w.Tensors {
		p := ref.Params[x.Name]
		elements := r.Perm(len(p))[:min(len(p), 6)]
		if x.Name == "model.embed_tokens.weight" {
			elements = append(elements, int(b.Tokens[0])*cfg.HiddenSize, int(b.Tokens[6])*cfg.HiddenSize+1)
		}
		for _, i := range elements {
			was := p[i]
			p[i] = was + h
			above := loss()
			p[i] = was - h
			want := (above - loss()) / (2 * h)
			p[i] = was
			require.InDelta(t, want, got[x.Name][i], 2e-3*math.Max(1, math.Abs(want)), "%s[%d]", x.Name, i)
		}
		// A random direction sees every element at once.
		direction := make([]float64, len(p))
		along, size := 0.0, 0.0
		for i := range direction {
			direction[i] = r.NormFloat64()
			along += direction[i] * float64(got[x.Name][i])
			size += math.Pow(float64(got[x.Name][i]), 2)
		}
		move := func(by float64) float64 {
			for i, v := range direction {
				p[i] += by * v
			}
			return loss()
		}
		above := move(h)
		below := move(-2 * h)
		move(h)
		require.InDelta(t, (above-below)/(2*h), along, 1e-3*math.Max(1, math.Sqrt(size)), x.Name)
	}
}

func testAccumulation(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	e := openEngine(t, newEngine, cfg)
	r := rand.New(rand.NewPCG(4, 4))
	one, two := packedBatch(r, cfg.VocabSize, 5, 6), packedBatch(r, cfg.VocabSize, 3)
	gOne, gTwo := gradientsFor(r, one, cfg.ValueHead), gradientsFor(r, two, cfg.ValueHead)
	backward := func(b *gpu.Batch, g *gpu.Gradients) { accumulatePart(t, e, b, g) }
	backward(one, gOne)
	first := readGradient(t, e)
	backward(two, gTwo)
	second := readGradient(t, e)
	backward(one, gOne)
	backward(two, gTwo)
	for name, both := range readGradient(t, e) {
		want := make([]float64, len(both))
		for i := range want {
			want[i] = float64(first[name][i]) + float64(second[name][i])
		}
		requireNear(t, name, want, both, 1e-4)
	}
	// Tokens outside the mask are ignored, whatever their gradient.
	for i := range one.Mask {
		if one.Mask[i] == 0 {
			gOne.Logprobs[i] = float32(math.NaN())
		}
	}
	backward(one, gOne)
	require.Equal(t, first, readGradient(t, e))
}

func testBatchInvariance(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	e := openEngine(t, newEngine, cfg)
	r := rand.New(rand.NewPCG(5, 5))
	b := packedBatch(r, cfg.VocabSize, 37, 5, 150, 1, 64, 12, 90)
	all := partOutputs(t, e, b)
	for s := range len(b.Offsets) - 1 {
		lo, hi := b.Offsets[s], b.Offsets[s+1]
		part := &gpu.Batch{
			Tokens: b.Tokens[lo:hi], Offsets: []int{0, hi - lo}, Mask: b.Mask[lo:hi], Temperature: b.Temperature[s : s+1],
		}
		alone := partOutputs(t, e, part)
		require.Equal(t, alone, accumulatePart(t, e, part, nil), "with a gradient or without")
		require.Equal(t, all.Logprobs[lo:hi], alone.Logprobs)
		require.Equal(t, all.Entropies[lo:hi], alone.Entropies)
		if all.ProbSquares != nil {
			require.Equal(t, all.ProbSquares[lo:hi], alone.ProbSquares)
		}
		if cfg.ValueHead {
			require.Equal(t, all.Values[lo:hi], alone.Values)
		}
	}
}

func testDeterminism(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	var want map[string][]float32
	for range 3 {
		e := openEngine(t, newEngine, cfg)
		r := rand.New(rand.NewPCG(6, 6))
		b := packedBatch(r, cfg.VocabSize, 40, 150, 3, 100)
		accumulatePart(t, e, b, gradientsFor(r, b, cfg.ValueHead))
		got := readGradient(t, e)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got)
	}
}

func testLearning(t *testing.T, newEngine NewEngine) {
	e := newEngine(t, testModels()[0].cfg)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	b := &gpu.Batch{Tokens: []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9}, Offsets: []int{0, 15}, Mask: make([]uint8, 15)}
	g := &gpu.Gradients{Logprobs: make([]float32, 15)}
	for i := range b.Mask {
		b.Mask[i], g.Logprobs[i] = 1, -1
	}
	loss := func() (sum float64) {
		for _, x := range accumulatePart(t, e, b, g).Logprobs {
			sum -= float64(x)
		}
		return sum
	}
	require.Greater(t, loss(), 20.0, "an untrained model knows nothing")
	for range 150 {
		loss()
		_, err := e.Step(t.Context(), gpu.StepOptions{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1})
		require.NoError(t, err)
	}
	require.Less(t, loss(), 0.2)
}
