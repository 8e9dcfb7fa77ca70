package native

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

// Weights that an import replaces are never drawn: at half a billion of them that takes seconds.
func TestWeightsThatAreReplacedAreNotDrawn(t *testing.T) {
	t.Parallel()
	cfg := gpu.Config{
		ModelType: "llama", VocabSize: 40, HiddenSize: 16, IntermediateSize: 24, NumLayers: 2, NumHeads: 2, NumKVHeads: 1,
		RopeTheta: 1e4, RMSNormEps: 1e-6, MaxPositions: 32,
	}
	from, err := New(cfg, Options{Seed: 3})
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "model")
	_, err = from.Export(t.Context(), dir, gpu.ExportOptions{})
	require.NoError(t, err)
	want, err := from.Weights(t.Context())
	require.NoError(t, err)

	e, err := New(cfg, Options{Seed: 4})
	require.NoError(t, err)
	drawn := false
	e.initWeights = func() { drawn = true }
	require.Error(t, e.Import(t.Context(), t.TempDir()), "nothing is there")
	require.NotNil(t, e.initWeights, "the engine still has its own starting weights")
	require.NoError(t, e.Import(t.Context(), dir))
	got, err := e.Weights(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.False(t, drawn)

	// Whatever else comes first draws them.
	batch := &gpu.Batch{Tokens: []int32{1, 2, 3}, Offsets: []int{0, 3}, Mask: []uint8{0, 1, 1}}
	for name, first := range map[string]func(e *Engine) error{
		"evaluate": func(e *Engine) error {
			return e.Evaluate(t.Context(), []*gpu.Batch{batch}, func(int, *gpu.Outputs) error { return nil })
		},
		"step": func(e *Engine) error {
			_, err := e.Step(t.Context(), gpu.StepOptions{Beta1: 0.9, Beta2: 0.9, Epsilon: 1e-8})
			return err
		},
		"export": func(e *Engine) error {
			_, err := e.Export(t.Context(), filepath.Join(t.TempDir(), "out"), gpu.ExportOptions{})
			return err
		},
	} {
		e, err := New(cfg, Options{Seed: 3})
		require.NoError(t, err)
		require.NoError(t, first(e), name)
		got, err := e.Weights(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
}
