package command

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/lab/weightsbench"
)

func TestBenchWeightsMeasuresARealRun(t *testing.T) {
	t.Parallel()
	out := weirLab(t, "bench", "weights", "--json", "--steps", "2", "--rates", "1e-5", "--swaps", "3", "--consumers", "2", "--callers", "2",
		"--large-hidden", "0", "--model.hidden", "32", "--model.intermediate", "48", "--model.layers", "1", "--trainer.batch_groups", "4",
		"--trainer.group_size", "4", "--trainer.cold_start.steps", "20", "--trainer.selection.drop_zero_variance=false",
		// Rewards are all 0 so early; the entropy alone has a gradient.
		"--trainer.loss.entropy_coef", "0.1")
	var r weightsbench.Report
	require.NoError(t, json.Unmarshal([]byte(out), &r), out)
	require.Len(t, r.Runs, 1)
	run := r.Runs[0]
	require.InDelta(t, 1e-5, run.LearningRate, 0)
	require.Equal(t, 4, run.StepsPerVersion)
	require.Len(t, run.Versions, 2)
	for _, v := range run.Versions {
		require.Positive(t, v.Changed, "the run trained")
		require.Positive(t, v.Bytes)
		require.Less(t, v.Bytes, run.Whole)
	}
	require.Len(t, r.Ways, 4)
	for _, w := range r.Ways {
		require.Equal(t, run.Whole, w.Whole)
		require.Positive(t, w.Total.P50)
		require.Equal(t, w.Deltas, w.Stored < w.Whole)
	}
}

func TestBenchWeightsRefusesWhatItCannotMeasure(t *testing.T) {
	t.Parallel()
	var complaint bytes.Buffer
	c := exec.CommandContext(t.Context(), program(t), "bench", "weights", "--steps", "40", "--rates", "1e-6,none", "--large-hidden", "100")
	c.Stderr = &complaint
	require.Error(t, c.Run())
	require.Equal(t, exitUsage, c.ProcessState.ExitCode())
	require.Equal(t, `weir-lab: --steps 40: must be in [1, 31]
--rates "none": want positive numbers
--large-hidden 100 --large-layers 8: want a multiple of 64 and at least one block, or 0
`, complaint.String())
}
