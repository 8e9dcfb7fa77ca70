package cli

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Evaluation tickets, sampled by inference consumers that hold the version and scored by producers, give the scores of the trainer's
// own process, version by version.
func TestScoresAtProducersAreThoseOfTheTrainer(t *testing.T) {
	t.Parallel()
	scores := func(at string) map[int64]map[string]float64 {
		dir := t.TempDir()
		weir(t, "up", "--run.dir", dir, "--trainer.cold_start.steps", "40", "--trainer.steps", "2", "--trainer.eta", "0",
			"--trainer.deterministic", "--eval.questions", "40", "--eval.test_questions", "4", "--eval.show", "0", "--eval.at", at,
			"--producer.evaluations", "5", "--run.producers", map[string]string{"trainer": "1", "producers": "2"}[at])
		records, err := report.ReadMetrics(filepath.Join(dir, "demo", "metrics.jsonl"))
		require.NoError(t, err)
		out := map[int64]map[string]float64{}
		for _, r := range records {
			if r.Type == string(schemas.EventEvaluated) {
				delete(r.Metrics, metrics.TimeEval.Name)
				out[r.PolicyVersion] = r.Metrics
			}
		}
		return out
	}
	here, there := scores("trainer"), scores("producers")
	require.Contains(t, here, int64(0))
	common := 0
	for version, score := range there {
		require.InDelta(t, 40, score[metrics.EvalQuestions.Name], 0)
		require.InDelta(t, 1, score[metrics.EvalVersions.Name], 0)
		if want, both := here[version]; both { // a slow score passes versions over
			common++
			require.Equal(t, want, score, "version %d", version)
		}
	}
	require.Positive(t, common)
}
