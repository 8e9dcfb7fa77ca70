package command

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBenchShadowsComparesWindowsOfARun(t *testing.T) {
	t.Parallel()
	out := weirLab(t, "bench", "shadows", "--json", "--shadows", "0,1", "--pairs", "2", "--window", "2s", "--model.hidden", "32",
		"--model.intermediate", "48", "--model.layers", "1", "--trainer.batch_groups", "2", "--trainer.group_size", "2", "--trainer.minibatches", "1",
		"--trainer.cold_start.steps", "5", "--trainer.selection.drop_zero_variance=false")
	var r shadowsReport
	require.NoError(t, json.Unmarshal([]byte(out), &r), out)
	require.Len(t, r.Arms, 2)
	for i, a := range r.Arms {
		require.Equal(t, i, a.Shadows)
		require.Positive(t, a.Pairs)
		require.Positive(t, a.Mean)
		require.Positive(t, a.Processor)
		require.Positive(t, a.Busy)
	}
	require.Zero(t, r.Arms[0].Taken)
	require.GreaterOrEqual(t, r.Arms[1].Behind, 0.0)
}
