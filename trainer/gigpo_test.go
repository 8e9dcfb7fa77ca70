package trainer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/batch"
)

// dialogue is a rollout: prompt, then for each turn two sampled tokens and what the tool said.
func dialogue(reward float64, stop schemas.StopReason, prompt int32, turns ...[3]int32) *schemas.Trajectory {
	s := schemas.Segment{Temperature: 1}
	add := func(token int32, sampled uint8) {
		version := schemas.NoVersion
		if sampled == 1 {
			version = 0
		}
		s.Tokens, s.ActionMask = append(s.Tokens, token), append(s.ActionMask, sampled)
		s.Logprobs, s.Versions = append(s.Logprobs, -float32(sampled)), append(s.Versions, version)
	}
	t := &schemas.Trajectory{Reward: reward, Stop: stop}
	add(0, 0)
	add(prompt, 0)
	for _, turn := range turns {
		start := len(s.Tokens)
		add(turn[0], 1)
		add(turn[1], 1)
		t.Turns = append(t.Turns, schemas.Turn{Start: start, End: len(s.Tokens), Tool: "search"})
		add(turn[2], 0)
	}
	t.Segments = []schemas.Segment{s}
	return t
}

// estimate gives what a run of this configuration trains on.
func estimate(t *testing.T, engine gpu.Engine, change func(*Config), group ...*schemas.Trajectory) (*batch.Rows, *oldPolicy, *advantage.Result) {
	t.Helper()
	cfg := testConfig(t.TempDir())
	change(&cfg)
	require.NoError(t, cfg.Validate())
	deps, err := Deps{Engine: engine, Stream: newWorld(vocab), Prompts: prompts{vocab}}.withDefaults()
	require.NoError(t, err)
	tr := &trainer{cfg: cfg, deps: deps}
	require.NoError(t, tr.chooseLoss())
	require.NoError(t, tr.chooseAdvantage())
	require.NoError(t, tr.chooseCritic())
	rows := tr.rows(batchOf(group...))
	old, err := tr.oldPolicy(t.Context(), rows)
	require.NoError(t, err)
	adv, err := tr.advantages(rows, old)
	require.NoError(t, err)
	return rows, old, adv
}

// batchOf is a batch of one group.
func batchOf(group ...*schemas.Trajectory) *batch.Batch {
	var taken batch.Taken
	for _, x := range group {
		taken.Members = append(taken.Members, batch.Member{Trajectory: x, Reward: x.Reward, Return: x.Reward})
	}
	return &batch.Batch{Groups: []batch.Taken{taken}}
}

// The turns of a group that follow one observation are compared with one another, whenever it was made.
func TestGiGPOComparesTurnsOfARunThatFollowOneObservation(t *testing.T) {
	t.Parallel()
	group := []*schemas.Trajectory{
		dialogue(1, schemas.StopAnswer, 1, [3]int32{2, 2, 5}, [3]int32{3, 3, 4}),                    // sees 5 after its first turn
		dialogue(0, schemas.StopAnswer, 1, [3]int32{2, 3, 4}, [3]int32{3, 2, 5}, [3]int32{2, 2, 0}), // sees 4, and 5 after its second
		dialogue(0, schemas.StopAnswer, 1, [3]int32{4, 4, 3}, [3]int32{4, 4, 3}),                    // sees 3 alone
	}
	for anchor, want := range map[string][]float64{
		// From the start: rewards 1, 0, 0 less their mean; after 5: 1 and 0; after 4 and 3: nobody else.
		"observation": {2. / 3, 1. / 2, -1. / 3, 0, -1. / 2, -1. / 3, 0},
		"context":     {2. / 3, 0, -1. / 3, 0, 0, -1. / 3, 0},
	} {
		rows, _, adv := estimate(t, newBigram(vocab), func(c *Config) {
			c.Advantage.Name, c.Advantage.Anchor, c.Advantage.DivideByStd, c.Advantage.StepWeight = "gigpo", anchor, false, 10
		}, group...)
		var turns []float64
		for i, m := range rows.Mask {
			if m == 1 && rows.Mask[i-1] == 0 {
				require.InDelta(t, adv.Advantages[i], adv.Advantages[i+1], 0, "a turn has one advantage")
				turns = append(turns, adv.Advantages[i])
			}
		}
		episode := []float64{2. / 3, 2. / 3, -1. / 3, -1. / 3, -1. / 3, -1. / 3, -1. / 3}
		require.Len(t, turns, len(want))
		for k, w := range want {
			require.InDelta(t, episode[k]+10*w, turns[k], 1e-9, "%s, turn %d", anchor, k)
		}
	}
}

func TestTurnsCannotBeToldApartWithoutMasks(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Advantage.Name, cfg.MaskTools = "gigpo", false
	require.ErrorContains(t, cfg.Validate(), "mask_tools: false: advantage gigpo")
}
