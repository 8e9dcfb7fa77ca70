package learner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
)

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
		rows, adv := estimate(t, enginetest.NewBigram(vocab), func(c *Config) {
			choose(c, "gigpo", func(k *advantage.GiGPO) { k.Anchor, k.DivideByStd, k.StepWeight = anchor, false, 10 })
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
	cfg := testConfig()
	cfg.Advantage.Name, cfg.MaskTools = "gigpo", false
	require.ErrorContains(t, cfg.Validate(), "mask_tools: false: advantage gigpo")
	cfg.Advantage.Name = "reinforce_step"
	require.NoError(t, cfg.Validate())
	choose(&cfg, "reinforce_step", func(k *advantage.ReinforceStep) { k.StepUnit = advantage.UnitTurn })
	require.ErrorContains(t, cfg.Validate(), "mask_tools: false: advantage reinforce_step")
}

// In a run whose contexts only grow, each turn is credited with what it and later turns were given, where turns are the steps;
// where contexts are, a trajectory is a single step.
func TestTurnsOfARunAreStepsOfTheirOwn(t *testing.T) {
	t.Parallel()
	tr := dialogue(1, schemas.StopAnswer, 1, [3]int32{2, 2, 5}, [3]int32{3, 3, 4}, [3]int32{2, 3, 0})
	tr.Turns[0].Reward, tr.Turns[1].ProcessReward = 4, -2
	for unit, want := range map[string][]float64{
		advantage.UnitTurn:    {4 - 1 + 0.25, -2 + 0.5, 1},
		advantage.UnitSegment: {3, 3, 3},
		advantage.UnitAuto:    {3, 3, 3},
	} {
		rows, adv := estimate(t, enginetest.NewBigram(vocab), func(c *Config) {
			choose(c, "reinforce_step", func(k *advantage.ReinforceStep) { k.StepUnit, k.StepGamma, k.Whiten = unit, 0.5, false })
		}, tr)
		var turns []float64
		for i, m := range rows.Mask {
			if m == 1 && rows.Mask[i-1] == 0 {
				turns = append(turns, adv.Advantages[i])
				require.InDelta(t, adv.Advantages[i], adv.Advantages[i+1], 0, "a turn has one advantage")
			}
		}
		require.InDeltaSlice(t, want, turns, 1e-9, unit)
	}
}
