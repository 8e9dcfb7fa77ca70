package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/metrics"
)

// Newcomer's frictions N9, N16 and N17: the cold start's line leaves at the first step, the rates count what was dropped too, and a
// mismatch that was not measured has no number.
func TestTheLiveViewAfterTheColdStart(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&out, true, 10, 4, time.Now)
	p.ColdStart(map[string]float64{metrics.ColdStartStep.Name: 20, metrics.ColdStartSteps.Name: 20})
	out.Reset()
	p.Add(Record{Type: "step_done", Step: 1, Metrics: map[string]float64{
		metrics.RateTrajectories.Name: 4, metrics.TimeStep.Name: 2, "rejected/zero_variance": 30, "rejected/stale": 2,
	}})
	require.NotContains(t, out.String(), "cold start")
	require.Contains(t, out.String(), "rates        20 trajectories/s made, 4 trained")
	require.Contains(t, out.String(), "mismatch     not measured: no token of the step")
	require.NotContains(t, out.String(), "effective sample size")
}

// Newcomer's friction N17: a word that stands many times in a row is counted.
func TestRepeatedWordsAreCounted(t *testing.T) {
	t.Parallel()
	require.Equal(t, "go <answer> × 96 end", countRepeats("go "+strings.Repeat("<answer> ", 96)+"end"))
	few := strings.TrimSpace(strings.Repeat("a ", leastRepeats-1))
	require.Equal(t, few+"  b", countRepeats(few+"  b"))
	var b strings.Builder
	RolloutPart{Role: RolePolicy, Text: strings.TrimSpace(strings.Repeat("<answer> ", 96))}.writePart(&b, false)
	require.Contains(t, b.String(), "<answer> × 96\n")
}
