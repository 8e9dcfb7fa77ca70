package enginetest

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

// testOptimizer checks that an engine given another's weights and optimizer goes on exactly as the other does.
func testOptimizer(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	one, two := openEngine(t, newEngine, cfg), openEngine(t, newEngine, cfg)
	r := rand.New(rand.NewPCG(8, 8))
	b := packedBatch(r, cfg.VocabSize, 8, 5)
	g := gradientsFor(r, b, cfg.ValueHead)
	step := func(e gpu.Engine) {
		accumulatePart(t, e, b, g)
		_, err := e.Step(t.Context(), gpu.StepOptions{LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1, ClipNorm: 1})
		require.NoError(t, err)
	}
	fresh, steps := engineMoments(t, one)
	require.Zero(t, steps)
	for _, x := range fresh {
		require.Equal(t, make([]float32, len(x)), x, "before the first step the moments are zeros")
	}
	step(one)
	step(one)
	dir, _ := exportEngine(t, one, gpu.ExportOptions{ShardBytes: 1000})
	steps, err := one.SaveOptimizer(t.Context(), dir)
	require.NoError(t, err)
	require.EqualValues(t, 2, steps)
	require.NoError(t, two.Import(t.Context(), dir))
	require.NoError(t, two.LoadOptimizer(t.Context(), dir, steps))
	step(one)
	step(two)
	same := func(a, b gpu.Engine) {
		t.Helper()
		require.Equal(t, engineWeights(t, a), engineWeights(t, b))
		m, n := engineMoments(t, a)
		m2, n2 := engineMoments(t, b)
		require.Equal(t, m, m2)
		require.Equal(t, n, n2)
	}
	same(one, two)
	all, _ := engineMoments(t, one)
	require.Len(t, all, 2*len(cfg.Layout()))

	// An optimizer that is reset goes on as a new engine's.
	three := openEngine(t, newEngine, cfg)
	require.NoError(t, three.Import(t.Context(), dir))
	require.NoError(t, two.Import(t.Context(), dir))
	require.NoError(t, two.ResetOptimizer(t.Context()))
	step(two)
	step(three)
	same(two, three)
	refusedOptimizers(t, two)
}

// testStep checks a step against AdamW's equations in float64.
func testStep(t *testing.T, newEngine NewEngine) {
	o := gpu.StepOptions{
		LearningRate: 1e-2, ValueLearningRate: 3e-2, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-3, WeightDecay: 0.1, ClipNorm: 0.5,
	}
	for _, m := range append(familyModels(), testModels()[3]) {
		checkStep(t, newEngine, m.cfg, o)
	}
	o.ValueLearningRate, o.ClipNorm = 0, 0
	checkStep(t, newEngine, testModels()[3].cfg, o)
}

func checkStep(t *testing.T, newEngine NewEngine, cfg gpu.Config, o gpu.StepOptions) {
	t.Helper()
	e := openEngine(t, newEngine, cfg)
	r := rand.New(rand.NewPCG(10, 10))
	b := packedBatch(r, cfg.VocabSize, 8, 5)
	up := gradientsFor(r, b, cfg.ValueHead)
	before := engineWeights(t, e)
	accumulatePart(t, e, b, up)
	g := readGradient(t, e)
	require.NoError(t, e.ResetOptimizer(t.Context()))

	accumulatePart(t, e, b, up)
	stats, err := e.Step(t.Context(), o)
	require.NoError(t, err)
	norm, scale := 0.0, 1.0
	for _, xs := range g {
		for _, x := range xs {
			norm += math.Pow(float64(x), 2)
		}
	}
	norm = math.Sqrt(norm)
	require.InEpsilon(t, norm, stats.GradNorm, 1e-4)
	if o.ClipNorm > 0 {
		require.Greater(t, norm, o.ClipNorm, "the step is clipped")
		scale *= o.ClipNorm / norm
	}
	after := engineWeights(t, e)
	for i, x := range before.Tensors {
		lr, decay := o.LearningRate, o.WeightDecay
		if len(x.Shape) == 1 {
			decay = 0
		}
		if x.Name == "value_head.weight" && o.ValueLearningRate > 0 {
			lr = o.ValueLearningRate
		}
		want := make([]float64, len(x.Data))
		for j, v := range x.Data {
			grad := float64(g[x.Name][j]) * scale
			// At the first step the corrected moments are the gradient and its square.
			want[j] = float64(v) - lr*(grad/(math.Abs(grad)+o.Epsilon)+decay*float64(v))
		}
		requireNear(t, x.Name, want, after.Tensors[i].Data, 1e-5)
	}
}

func testSkip(t *testing.T, newEngine NewEngine) {
	cfg := testModels()[0].cfg
	e := openEngine(t, newEngine, cfg)
	r := rand.New(rand.NewPCG(11, 11))
	b := packedBatch(r, cfg.VocabSize, 8)
	g := gradientsFor(r, b, false)
	b.Mask[3], g.Logprobs[3] = 1, float32(math.Inf(1))
	before := engineWeights(t, e)
	o := gpu.StepOptions{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1, ClipNorm: 1}
	accumulatePart(t, e, b, g)
	stats, err := e.Step(t.Context(), o)
	require.NoError(t, err)
	require.True(t, stats.Skipped)
	after := engineWeights(t, e)
	require.Equal(t, before, after)
	_, steps := engineMoments(t, e)
	require.Zero(t, steps)
	stats, err = e.Step(t.Context(), o)
	require.NoError(t, err)
	require.False(t, stats.Skipped, "the gradient was cleared")
	require.Zero(t, stats.GradNorm)
}

func testBadBatches(t *testing.T, newEngine NewEngine) {
	e := openEngine(t, newEngine, testModels()[0].cfg)
	evaluate := func(parts ...*gpu.Batch) error {
		return e.Evaluate(t.Context(), parts, func(int, *gpu.Outputs) error { return nil })
	}
	down := func(b *gpu.Batch, g *gpu.Gradients) error {
		return e.Accumulate(t.Context(), []*gpu.Batch{b}, func(int, *gpu.Outputs) (*gpu.Gradients, error) { return g, nil })
	}
	good := func() *gpu.Batch {
		return &gpu.Batch{Tokens: []int32{1, 2, 3}, Offsets: []int{0, 3}, Mask: []uint8{1, 1, 1}}
	}
	for name, spoil := range map[string]func(*gpu.Batch){
		"token":       func(b *gpu.Batch) { b.Tokens[1] = 23 },
		"negative":    func(b *gpu.Batch) { b.Tokens[1] = -1 },
		"mask":        func(b *gpu.Batch) { b.Mask = b.Mask[1:] },
		"offsets":     func(b *gpu.Batch) { b.Offsets = []int{0, 2} },
		"no offsets":  func(b *gpu.Batch) { b.Offsets = nil },
		"decreasing":  func(b *gpu.Batch) { b.Offsets = []int{0, 5, 1, 3} },
		"temperature": func(b *gpu.Batch) { b.Temperature = []float32{0} },
		"nan":         func(b *gpu.Batch) { b.Temperature = []float32{float32(math.NaN())} },
		"too many":    func(b *gpu.Batch) { b.Temperature = []float32{1, 1} },
	} {
		b := good()
		spoil(b)
		err := evaluate(b, good())
		require.Error(t, err, name)
		at, is := errors.AsType[*gpu.PartError](err)
		require.True(t, is, "%s: %v", name, err)
		require.Equal(t, 0, at.Part)
		require.Error(t, down(b, &gpu.Gradients{}), name)
	}
	long := &gpu.Batch{Tokens: make([]int32, 257), Offsets: []int{0, 257}, Mask: make([]uint8, 257)}
	require.ErrorIs(t, evaluate(long), gpu.ErrTooLong)
	second, is := errors.AsType[*gpu.PartError](evaluate(good(), long))
	require.True(t, is)
	require.Equal(t, 1, second.Part)
	require.NoError(t, evaluate(good()))
	require.Error(t, down(good(), &gpu.Gradients{Logprobs: make([]float32, 2)}))
	require.Error(t, down(good(), &gpu.Gradients{Values: make([]float32, 3)}), "there is no value head")
}
