package learner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/selection"
)

// The best of a group are trained on for what they are among all of it.
func TestTheBestOfAGroupAreTrainedOn(t *testing.T) {
	t.Parallel()
	call := [3]int32{2, 3, 4}
	group := []*schemas.Trajectory{
		dialogue(1, schemas.StopTurns, 1, call), dialogue(0, schemas.StopAnswer, 1, call),
		dialogue(1, schemas.StopAnswer, 1, call), dialogue(0, schemas.StopAnswer, 1, call),
	}
	for take, want := range map[int][]float64{1: {0, 0, 0.5, 0}, 2: {0.5, 0, 0.5, 0}, 3: {0.5, -0.5, 0.5, 0}} {
		cfg := testConfig()
		rows, adv := estimate(t, enginetest.NewBigram(vocab), func(c *Config) {
			c.Selection.Resample.By, c.Selection.Resample.Take, c.Advantage.Name = selection.ResampleBest, take, "dr_grpo"
			cfg = *c
		}, group...)
		rows = rows.Silenced(cfg.silencedTrajectories(batchOf(group...)))
		for i, w := range want {
			for j := rows.Offsets[i]; j < rows.Offsets[i+1]; j++ {
				require.InDelta(t, w*float64(group[i].Segments[0].ActionMask[j-rows.Offsets[i]]), adv.Advantages[j]*float64(rows.Mask[j]), 1e-12)
			}
		}
	}
}

func TestRoughnessOfARollout(t *testing.T) {
	t.Parallel()
	call, failed, idle := schemas.Turn{Calls: []schemas.ToolCall{{Tool: "search"}}}, schemas.Turn{Calls: []schemas.ToolCall{{Tool: "search", Failed: true}}}, schemas.Turn{}
	for _, c := range []struct {
		turns []schemas.Turn
		stop  schemas.StopReason
		want  float64
	}{
		{[]schemas.Turn{call, failed, idle}, schemas.StopAnswer, 0.5},
		{[]schemas.Turn{call, idle}, schemas.StopAnswer, 0},
		{[]schemas.Turn{idle, call, idle, idle}, schemas.StopAnswer, 0.5},
		{[]schemas.Turn{idle}, schemas.StopAnswer, 0.5},
		{[]schemas.Turn{call, call}, schemas.StopTurns, 1},
		{[]schemas.Turn{failed}, schemas.StopTokens, 2},
	} {
		require.InDelta(t, c.want, formatPenalty(&schemas.Trajectory{Turns: c.turns, Stop: c.stop}), 1e-12)
	}
}
