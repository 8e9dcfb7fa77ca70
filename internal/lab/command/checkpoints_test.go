package command

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBenchCheckpointsMeasuresRunsThatAreKilled(t *testing.T) {
	t.Parallel()
	out := weirLab(t, "bench", "checkpoints", "--json", "--rounds", "1", "--trainer.steps", "3", "--trainer.checkpoint.full_every", "9", "--model.hidden", "32",
		"--model.intermediate", "48", "--model.layers", "1", "--trainer.batch_groups", "2", "--trainer.group_size", "2", "--trainer.minibatches", "1")
	var r checkpointsReport
	require.NoError(t, json.Unmarshal([]byte(out), &r), out)
	require.Len(t, r.Arms, 2)
	for i, every := range []int64{1, 9} {
		a := r.Arms[i]
		require.Equal(t, every, a.FullEvery)
		require.Equal(t, 1, a.Steps)
		require.Positive(t, a.Step.Median)
		require.Positive(t, a.Save.Median)
		require.Positive(t, a.Resume.Median)
		require.Positive(t, a.InUse.Median)
	}
}
