package records

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/realpython"
)

// TensorBoard itself reads the event file, each number at its step and time.
func TestTensorBoardReadsTheEventFile(t *testing.T) {
	t.Parallel()
	python := realpython.Interpreter(t, "tensorboard")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "events.out.tfevents.test"), events(t, sample()), 0o600))
	var got []scalar
	require.NoError(t, json.Unmarshal([]byte(realpython.Run(t, python, "testdata/published.py", dir)), &got))
	require.Equal(t, []scalar{
		{1795341600.5, 3, "eval/exact_match", 0.25},
		{1795341601.5, 4, "loss/kl", float64(float32(1e-9))},
		{1795341601.5, 4, "reward/mean", -1.5},
	}, got)
}
