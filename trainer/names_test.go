package trainer

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
)

// Defect P19: each name in a trajectory became a metric, of any length and without end.
func TestNamesThatTrajectoriesMakeUpAreBounded(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	deps, err := Deps{Engine: enginetest.NewBigram(vocab), Stream: newWorld(vocab), Prompts: prompts{vocab}, Log: slog.New(slog.NewTextHandler(&log, nil))}.withDefaults()
	require.NoError(t, err)
	r := newReport(deps)
	seen := map[string]bool{}
	for step := range 20 {
		b := &batch.Batch{Groups: []batch.Taken{{}}}
		for i := range 10 {
			name := fmt.Sprintf("made-up-%02d-%d", step, i)
			rewards := map[string]float64{"honest": 1, name: 1, strings.Repeat("x", 1000+i): 3, "a\x1b[31m": 3}
			b.Groups[0].Members = append(b.Groups[0].Members, batch.Member{
				Trajectory: &schemas.Trajectory{
					Rewards: rewards, Source: name,
					Turns: []schemas.Turn{{Calls: []schemas.ToolCall{{Tool: "search"}, {Tool: name}}}, {Calls: []schemas.ToolCall{{Tool: "search"}}}},
				}, Return: 1,
			})
		}
		r.measureBatch(b)
		require.Equal(t, 1.0, r.stats.values["reward/component/honest"])
		require.Equal(t, 2.0, r.stats.values["batch/calls/search"])
		require.Contains(t, r.stats.values, "reward/component/other")
		for name := range r.stats.values {
			seen[name] = true
			require.Less(t, len(name), 100)
		}
	}
	require.InDelta(t, 7.0/3, r.stats.values["reward/component/other"], 1e-12, "of the last step's names, one of 1 and two of 3 a trajectory")
	require.Equal(t, 0.0, r.stats.values["batch/calls/made-up-00-0"], "a tool that is called no more is told of")
	require.Equal(t, 1.0, r.stats.values["batch/calls/other"])
	require.Less(t, len(seen), 300)
	require.Equal(t, 3, strings.Count(log.String(), "count together"), "once a kind")
}
