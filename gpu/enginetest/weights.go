package enginetest

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// SetWeights replaces an engine's weights, by way of a folder. The tensors may come in any order; their names and shapes are the
// model's.
func SetWeights(t testing.TB, e gpu.Engine, w *gpu.Weights) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "weights")
	require.NoError(t, hf.Save(dir, e.Config(), w, nil, safetensors.F32))
	require.NoError(t, e.Import(t.Context(), dir))
}
