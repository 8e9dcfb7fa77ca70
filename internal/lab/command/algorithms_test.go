package command

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/report"
)

// Two algorithms learn from one cold start, and what is there is not run again.
func TestBenchAlgorithmsComparesFromOneStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{
		"bench", "algorithms", "--dir", dir, "--seeds", "1", "--algorithms", "grpo,gspo", "--model.layers", "1", "--model.hidden", "16",
		"--model.intermediate", "16", "--trainer.steps", "3", "--trainer.batch_groups", "2", "--trainer.group_size", "2", "--trainer.cold_start.steps", "10",
		"--trainer.selection.drop_zero_variance=false", "--eval.questions", "8", "--eval.every", "1",
	}
	var all []learned
	require.NoError(t, json.Unmarshal([]byte(weirLab(t, append(args, "--json")...)), &all))
	require.Len(t, all, 2)
	require.Equal(t, all[0].Start, all[1].Start)
	before := read(t, dir, "seed-1", "gspo", "metrics.jsonl")
	out := weirLab(t, args...)
	require.Contains(t, out, "area less grpo's")
	require.Contains(t, out, "gspo")
	require.Equal(t, before, read(t, dir, "seed-1", "gspo", "metrics.jsonl"))
	records, err := report.ReadMetrics(filepath.Join(dir, "seed-1", "grpo", "metrics.jsonl"))
	require.NoError(t, err)
	require.True(t, trainedTo(records, 3))
	require.False(t, trainedTo(records, 4))
}

func TestBenchAlgorithmsRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	var complaint bytes.Buffer
	c := exec.CommandContext(t.Context(), program(t), "bench", "algorithms", "--seeds", "0", "--algorithms", "grpo,magic")
	c.Stderr = &complaint
	require.Error(t, c.Run())
	require.Equal(t, exitUsage, c.ProcessState.ExitCode())
	require.Contains(t, complaint.String(), "--seeds 0: must be positive")
	require.Contains(t, complaint.String(), `--algorithms "magic": want some of cispo, dr_grpo, gae, grpo, gspo, reinforce_pp, rloo`)
}
