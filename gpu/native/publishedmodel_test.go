package native_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/realpython"
)

// A published model's folder, such as the folder that examples/published-model makes: log-probabilities are those of Transformers
// before and after a step of AdamW, and so is the gradient's norm.
func TestAPublishedModelIsReadAndTrainedAsByTransformers(t *testing.T) {
	folder := os.Getenv("WEIR_PUBLISHED_MODEL")
	if folder == "" {
		t.Skip("WEIR_PUBLISHED_MODEL names no model folder: examples/published-model/make_folder.py makes one")
	}
	python := realpython.Interpreter(t, "torch", "transformers")
	tok, err := bpe.Load(filepath.Join(folder, "tokenizer.json"))
	require.NoError(t, err)
	var sequences [][]int32
	for _, text := range []string{
		"The capital of France is Paris, and 17 + 25 = 42. A week has seven days, and the days of a year are 365.",
		"def f(x):\n    return x * 2 + 1\n", "Größe, naïve café, 東京 1234567890",
	} {
		sequences = append(sequences, tok.Encode(text))
	}
	const rate, epsilon = 1e-5, 1e-4
	question, err := json.Marshal(map[string]any{"folder": folder, "sequences": sequences, "rate": rate, "epsilon": epsilon})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "question.json")
	require.NoError(t, os.WriteFile(path, question, 0o600))
	var want struct {
		Before, After [][]float32
		Norm          float64
	}
	require.NoError(t, json.Unmarshal([]byte(realpython.Run(t, python, "testdata/publishedmodel.py", path)), &want))

	open, err := hf.Open(folder)
	require.NoError(t, err)
	config := open.Config
	require.NoError(t, open.Close())
	e := newEngine(t, config, native.Options{})
	require.NoError(t, e.Import(t.Context(), folder))
	parts := make([]*gpu.Batch, len(sequences))
	for i, ids := range sequences {
		parts[i] = &gpu.Batch{Tokens: ids, Mask: make([]uint8, len(ids)), Offsets: []int{0, len(ids)}}
		for k := range ids[1:] {
			parts[i].Mask[k+1] = 1
		}
	}
	// compare holds log-probabilities to Transformers'. Activations of some models reach tens of thousands: in float32 both then differ
	// from float64 by several 1e-5.
	compare := func(want [][]float32, when string) {
		for i, part := range parts {
			require.InDeltaSlice(t, want[i], logprobs(t, e, part)[1:], 3e-4, when)
		}
	}
	compare(want.Before, "before the step")
	require.NoError(t, e.Accumulate(t.Context(), parts[:1], func(int, *gpu.Outputs) (*gpu.Gradients, error) {
		g := make([]float32, len(sequences[0]))
		for i := range g[1:] {
			g[i+1] = -1 / float32(len(g)-1)
		}
		return &gpu.Gradients{Logprobs: g}, nil
	}))
	stats, err := e.Step(t.Context(), gpu.StepOptions{LearningRate: rate, Beta1: 0.9, Beta2: 0.95, Epsilon: epsilon})
	require.NoError(t, err)
	require.InEpsilon(t, want.Norm, stats.GradNorm, 1e-3)
	compare(want.After, "after the step")
	require.Greater(t, distance(want.Before[0], want.After[0]), 1e-2, "the step changes something")
}
