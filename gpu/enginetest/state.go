package enginetest

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

func testWeights(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	e := open(t, newEngine, cfg)
	want := randomWeights(t, e, 9)
	require.NoError(t, e.SetWeights(t.Context(), want))
	got, err := e.Weights(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, got)

	for name, spoil := range map[string]func(w *gpu.Weights) (tensor string){
		"missing": func(w *gpu.Weights) string {
			name := w.Tensors[0].Name
			w.Tensors = w.Tensors[1:]
			return name
		},
		"extra": func(w *gpu.Weights) string {
			w.Tensors = append(w.Tensors, gpu.Tensor{Name: "model.extra", Shape: []int{1}, Data: []float32{1}})
			return "model.extra"
		},
		"twice": func(w *gpu.Weights) string {
			w.Tensors = append(w.Tensors, w.Tensors[2])
			return w.Tensors[2].Name
		},
		"shape": func(w *gpu.Weights) string {
			w.Tensors[1].Shape = []int{3, 5}
			return w.Tensors[1].Name
		},
		"short": func(w *gpu.Weights) string {
			w.Tensors[1].Data = w.Tensors[1].Data[1:]
			return w.Tensors[1].Name
		},
	} {
		w, err := e.Weights(t.Context())
		require.NoError(t, err)
		w.Tensors[0].Data[0]++
		tensor := spoil(w)
		err = e.SetWeights(t.Context(), w)
		require.ErrorIs(t, err, gpu.ErrMismatch, name)
		require.ErrorContains(t, err, tensor, name)
		after, err := e.Weights(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, after, "a mismatch changes nothing: %s", name)
	}
}

// testOptimizer checks that an engine given another's weights and optimizer goes on exactly as that one.
func testOptimizer(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	one, two := open(t, newEngine, cfg), open(t, newEngine, cfg)
	r := rand.New(rand.NewPCG(8, 8))
	b := packed(r, cfg.VocabSize, 8, 5)
	g := gradientsFor(r, b, cfg.ValueHead)
	step := func(e gpu.Engine) {
		outputs(t, e, b, true)
		require.NoError(t, e.Backward(t.Context(), g))
		_, err := e.Step(t.Context(), gpu.StepOptions{LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1, ClipNorm: 1})
		require.NoError(t, err)
	}
	step(one)
	step(one)
	w, err := one.Weights(t.Context())
	require.NoError(t, err)
	s, err := one.Optimizer(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, s.Steps)
	require.Len(t, s.Moments, 2*len(w.Tensors))
	require.NoError(t, two.SetWeights(t.Context(), w))
	require.NoError(t, two.SetOptimizer(t.Context(), s))
	step(one)
	step(two)
	for _, get := range []func(gpu.Engine) any{
		func(e gpu.Engine) any { w, _ := e.Weights(t.Context()); return w },
		func(e gpu.Engine) any { s, _ := e.Optimizer(t.Context()); return s },
	} {
		require.Equal(t, get(one), get(two))
	}
	s.Moments = s.Moments[1:]
	require.ErrorIs(t, two.SetOptimizer(t.Context(), s), gpu.ErrMismatch)
}

// testStep checks a step against AdamW's equations in float64.
func testStep(t *testing.T, newEngine NewEngine) {
	o := gpu.StepOptions{
		LearningRate: 1e-2, ValueLearningRate: 3e-2, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-3, WeightDecay: 0.1, ClipNorm: 0.5, Scale: 0.25,
	}
	checkStep(t, newEngine, o)
	o.ValueLearningRate, o.ClipNorm, o.Scale = 0, 0, 0
	checkStep(t, newEngine, o)
}

func checkStep(t *testing.T, newEngine NewEngine, o gpu.StepOptions) {
	t.Helper()
	cfg := models()[3].cfg
	e := open(t, newEngine, cfg)
	r := rand.New(rand.NewPCG(10, 10))
	b := packed(r, cfg.VocabSize, 8, 5)
	up := gradientsFor(r, b, true)
	before, err := e.Weights(t.Context())
	require.NoError(t, err)
	outputs(t, e, b, true)
	require.NoError(t, e.Backward(t.Context(), up))
	g := gradient(t, e)
	require.NoError(t, e.SetOptimizer(t.Context(), &gpu.OptimizerState{}))

	outputs(t, e, b, true)
	require.NoError(t, e.Backward(t.Context(), up))
	stats, err := e.Step(t.Context(), o)
	require.NoError(t, err)
	norm, scale := 0.0, o.Scale
	if scale == 0 {
		scale = 1
	}
	for _, xs := range g {
		for _, x := range xs {
			norm += math.Pow(float64(x)*scale, 2)
		}
	}
	norm = math.Sqrt(norm)
	require.InEpsilon(t, norm, stats.GradNorm, 1e-4)
	if o.ClipNorm > 0 {
		require.Greater(t, norm, o.ClipNorm, "the step is clipped")
		scale *= o.ClipNorm / norm
	}
	after, err := e.Weights(t.Context())
	require.NoError(t, err)
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
	cfg := models()[0].cfg
	e := open(t, newEngine, cfg)
	r := rand.New(rand.NewPCG(11, 11))
	b := packed(r, cfg.VocabSize, 8)
	g := gradientsFor(r, b, false)
	b.Mask[3], g.Logprobs[3] = 1, float32(math.Inf(1))
	before, err := e.Weights(t.Context())
	require.NoError(t, err)
	o := gpu.StepOptions{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1, ClipNorm: 1}
	outputs(t, e, b, true)
	require.NoError(t, e.Backward(t.Context(), g))
	stats, err := e.Step(t.Context(), o)
	require.NoError(t, err)
	require.True(t, stats.Skipped)
	after, err := e.Weights(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after)
	s, err := e.Optimizer(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.Steps)
	stats, err = e.Step(t.Context(), o)
	require.NoError(t, err)
	require.False(t, stats.Skipped, "the gradient was cleared")
	require.Zero(t, stats.GradNorm)
}

func testBadBatches(t *testing.T, newEngine NewEngine) {
	e := open(t, newEngine, models()[0].cfg)
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
		_, err := e.Forward(t.Context(), b, true)
		require.Error(t, err, name)
		require.Error(t, e.Backward(t.Context(), &gpu.Gradients{}), name)
	}
	long := &gpu.Batch{Tokens: make([]int32, 257), Offsets: []int{0, 257}, Mask: make([]uint8, 257)}
	_, err := e.Forward(t.Context(), long, false)
	require.ErrorIs(t, err, gpu.ErrTooLong)
	_, err = e.Forward(t.Context(), good(), true)
	require.NoError(t, err)
	require.Error(t, e.Backward(t.Context(), &gpu.Gradients{Logprobs: make([]float32, 2)}))
	require.Error(t, e.Backward(t.Context(), &gpu.Gradients{Values: make([]float32, 3)}), "there is no value head")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = e.Forward(ctx, good(), false)
	require.ErrorIs(t, err, context.Canceled)
}
