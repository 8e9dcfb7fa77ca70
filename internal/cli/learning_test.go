package cli

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Issue 7, item 4: the demonstration has something to learn from rewards. A small part of it: after a short cold start on
// questions of one hop, eight steps find out which book has what, so that many more of the held-out ones are answered.
func TestTheDemonstrationLearnsFromRewards(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "a training of the demonstration")
	dir := t.TempDir()
	weir(t, "up", "--run.dir", dir, "--tasks.library.demo.one_hop_first", "1000000", "--tasks.library.demo.usual_books", "3",
		"--trainer.cold_start.steps", "400", "--trainer.steps", "8", "--trainer.minibatches", "4", "--trainer.eta", "0", "--trainer.deterministic",
		"--eval.every", "8", "--eval.questions", "200", "--eval.test_questions", "4", "--eval.show", "0")
	records, err := report.ReadMetrics(filepath.Join(dir, "demo", "metrics.jsonl"))
	require.NoError(t, err)
	start := report.Collect(records, string(schemas.EventEvaluated), metrics.EvalExactMatch.Name+"/1-hop", "")
	require.NotEmpty(t, start.X)
	require.Zero(t, start.X[0])
	var end producers.EvalReport
	require.NoError(t, json.Unmarshal([]byte(weir(t, "eval", "--run.dir", dir, "--questions", "200", "--json")), &end))
	require.Equal(t, 200, end.N)
	// 0.46 and 0.78 here; a standard error of 0.06.
	require.Less(t, start.Y[0], 0.6)
	require.Greater(t, end.BySource["1-hop"].ExactMatch, start.Y[0]+0.15)
}
