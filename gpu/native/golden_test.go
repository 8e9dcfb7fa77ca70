package native_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/native"
)

// golden is testdata/golden.json; testdata/golden.py wrote it.
type golden struct {
	Config                      gpu.Config
	Sequences                   [][]int32
	Temperatures                []float32
	Logprobs, Entropies, Values []float64
	Gradients, Weights          map[string][]float64
	Norms                       []float64
}

// wave is golden.py's.
func wave(n int, seed float64) []float32 {
	xs := make([]float32, n)
	for i := range xs {
		x := float64(i)
		xs[i] = float32(math.Sin(x*x*0.01 + x*0.37 + seed))
	}
	return xs
}

func summary(xs []float32) []float64 {
	s := make([]float64, 2)
	for i, seed := range []float64{0.5, 1.5} {
		for j, w := range wave(len(xs), seed) {
			s[i] += float64(w) * float64(xs[j])
		}
	}
	return s
}

func TestAgreesWithPyTorch(t *testing.T) { agreesWithPyTorch(t, "golden.json", native.LoRA{}) }

func TestAdaptersAgreeWithPyTorch(t *testing.T) {
	lora := native.DefaultLoRA()
	lora.Rank, lora.Alpha = 3, 6
	agreesWithPyTorch(t, "golden_lora.json", lora)
}

func agreesWithPyTorch(t *testing.T, file string, lora native.LoRA) {
	data, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	var want golden
	require.NoError(t, json.Unmarshal(data, &want))
	e, err := native.New(want.Config, native.Options{LoRA: lora})
	require.NoError(t, err)
	w, err := e.Weights(t.Context())
	require.NoError(t, err)
	for i, x := range w.Tensors {
		for j, v := range wave(len(x.Data), float64(i)) {
			x.Data[j] = float32(0.25 * float64(v))
			if len(x.Shape) == 1 {
				x.Data[j] = float32(1 + 0.25*float64(v))
			}
		}
	}
	enginetest.SetWeights(t, e, w)
	if lora.Rank > 0 {
		for i, x := range e.Trained() {
			if x.Name == gpu.ValueHeadTensor {
				continue
			}
			for j, v := range wave(len(x.Data), float64(1000+i)) {
				x.Data[j] = float32(0.25 * float64(v))
			}
		}
	}
	b := &gpu.Batch{Offsets: []int{0}, Temperature: want.Temperatures}
	for _, s := range want.Sequences {
		b.Tokens = append(b.Tokens, s...)
		b.Offsets = append(b.Offsets, len(b.Tokens))
	}
	n := len(b.Tokens)
	for range n {
		b.Mask = append(b.Mask, 1)
	}
	backward := func() {
		got, err := e.Forward(t.Context(), b, true)
		require.NoError(t, err)
		for i := range n {
			if want.Norms != nil {
				require.InDelta(t, want.Logprobs[i], got.Logprobs[i], 2e-5)
				require.InDelta(t, want.Entropies[i], got.Entropies[i], 2e-5)
				require.InDelta(t, want.Values[i], got.Values[i], 2e-5)
			}
		}
		require.NoError(t, e.Backward(t.Context(), &gpu.Gradients{Logprobs: wave(n, 100), Entropies: wave(n, 101), Values: wave(n, 102)}))
	}
	norms := want.Norms
	backward()
	// With Beta1 0 the first moment is the gradient.
	_, err = e.Step(t.Context(), gpu.StepOptions{Epsilon: 1})
	require.NoError(t, err)
	moments := e.Moments()
	for i, x := range e.Trained() {
		got := summary(moments[i].Data)
		require.InDeltaSlice(t, want.Gradients[x.Name], got, 2e-4*norms[0], x.Name)
	}
	require.NoError(t, e.ResetOptimizer(t.Context()))
	for step, norm := range norms {
		backward()
		want.Norms = nil
		stats, err := e.Step(t.Context(), gpu.StepOptions{
			LearningRate: 1e-2, ValueLearningRate: 3e-2, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-4, WeightDecay: 0.1, ClipNorm: 0.5,
		})
		require.NoError(t, err)
		require.InEpsilon(t, norm, stats.GradNorm, 1e-4, "step %d", step)
	}
	for _, x := range e.Trained() {
		got := summary(x.Data)
		require.InDeltaSlice(t, want.Weights[x.Name], got, 1e-3, x.Name)
	}
}
