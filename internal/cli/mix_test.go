package cli

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// One run trains on two tasks: each has its share of the questions by weight, its limits, and scores of its own, and the policy
// speaks with the words of both.
func TestOneRunMixesTasks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := weir(t, "up", "--run.dir", dir, "--tasks", "countries,library", "--tasks.countries.weight", "3", "--tasks.countries.limits.max_turns", "0",
		"--trainer.cold_start.steps", "40", "--trainer.steps", "3", "--trainer.batch_groups", "16", "--trainer.group_size", "4", "--trainer.minibatches", "1",
		"--trainer.selection.drop_zero_variance=false", "--trainer.eta", "0", "--model.layers", "1", "--broker.listen", "127.0.0.1:0", "--telemetry.listen", "127.0.0.1:0",
		"--eval.questions", "24", "--eval.test_questions", "16", "--eval.show", "0")
	require.Contains(t, out, "test split, 16 questions of the tasks countries, library (version 3)")
	require.Contains(t, out, "  countries/2n  a country's ne")

	records, err := report.ReadMetrics(filepath.Join(dir, "demo", "metrics.jsonl"))
	require.NoError(t, err)
	scored := false
	for _, r := range records {
		switch r.Type {
		case string(schemas.EventEvaluated):
			scored = true
			both := (r.Metrics["eval/task/countries"] + r.Metrics["eval/task/library"]) / 2
			require.InDelta(t, both, r.Metrics["eval/exact_match"], 1e-12)
			require.Contains(t, r.Metrics, "eval/exact_match/library/4-hop")
			require.InDelta(t, 24, r.Metrics["eval/questions"], 0)
		case string(schemas.EventStepDone):
			require.Contains(t, r.Metrics, "reward/task/countries")
			require.Contains(t, r.Metrics, "reward/task/library")
		}
	}
	require.True(t, scored)

	// The record of the steps says of which task each trajectory was, and how many turns it took.
	checkpoints := filepath.Join(dir, "demo", "checkpoints")
	kept, err := checkpoint.ReadRecords(checkpoints)
	require.NoError(t, err)
	groups, turns := map[string]map[string]bool{"countries": {}, "library": {}}, map[string]int{}
	for _, rec := range kept[1:] { // step 0 is the cold start
		deliveries, err := checkpoint.ReadBatch(checkpoints, &rec)
		require.NoError(t, err)
		for _, d := range deliveries {
			groups[d.Trajectory.Task][d.Trajectory.Group] = true
			turns[d.Trajectory.Task] = max(turns[d.Trajectory.Task], len(d.Trajectory.Turns))
		}
	}
	require.Len(t, groups["countries"], 36)
	require.Len(t, groups["library"], 12)
	require.LessOrEqual(t, turns["countries"], 1, "no tool call")
	require.Greater(t, turns["library"], 1)

	var answer struct {
		N      int            `json:"questions"`
		ByTask map[string]any `json:"by_task"`
	}
	require.NoError(t, json.Unmarshal([]byte(weir(t, "eval", "--run.dir", dir, "--questions", "8", "--json")), &answer))
	require.Len(t, answer.ByTask, 2)
	require.Equal(t, 8, answer.N)
	require.Contains(t, weir(t, "chat", "--run.dir", dir, "--task", "countries", "what is the capital of sweden ?"), "answer")
}
