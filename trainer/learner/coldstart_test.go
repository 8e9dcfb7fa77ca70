package learner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
)

// counting demonstrates the token after each.
type counting struct{}

func (counting) Demonstration(i uint64) ([]int32, []uint8) {
	start := int32(i % vocab)
	return []int32{0, start, (start + 1) % vocab, (start + 2) % vocab}, []uint8{0, 0, 1, 1}
}

type broken struct{}

func (broken) Demonstration(uint64) ([]int32, []uint8) { return []int32{0, 1}, []uint8{1, 1} }

func coldConfig() ColdStart {
	c := DefaultColdStart()
	c.Steps, c.Enough, c.Batch, c.ReportEvery, c.MicroTokens = 40, 0, 8, 10, 12
	c.Optimizer.LearningRate, c.Optimizer.WarmupSteps = 1, 4
	return c
}

func TestImitateLearnsTheDemonstrations(t *testing.T) {
	t.Parallel()
	var losses []float64
	e := enginetest.NewBigram(vocab)
	require.NoError(t, Imitate(t.Context(), coldConfig(), e, counting{}, func(step int64, loss float64) { losses = append(losses, loss) }))
	require.Len(t, losses, 4)
	require.Greater(t, losses[0], losses[3])
	require.Less(t, losses[3], 0.1)
	require.Zero(t, e.Steps, "moments are cleared")
	for _, m := range e.Momentum {
		require.Zero(t, m)
	}
	again := enginetest.NewBigram(vocab)
	require.NoError(t, Imitate(t.Context(), coldConfig(), again, counting{}, nil))
	require.Equal(t, e.Table, again.Table)
}

// Newcomer's friction 2: a cold start that goes on until the policy imitates perfectly leaves nothing to compare.
func TestImitateEndsWhenTheDemonstrationsAreLearnt(t *testing.T) {
	t.Parallel()
	steps := func(enough float64) (last int64, loss float64) {
		c := coldConfig()
		c.Steps, c.ReportEvery, c.Enough = 400, 1, enough
		require.NoError(t, Imitate(t.Context(), c, enginetest.NewBigram(vocab), counting{}, func(step int64, l float64) { last, loss = step, l }))
		return last, loss
	}
	all, low := steps(0)
	require.EqualValues(t, 400, all)
	require.Less(t, low, 0.05)
	ended, loss := steps(0.5)
	require.Less(t, ended, int64(400))
	require.Less(t, loss, 0.5, "the last step is reported")
	require.Greater(t, loss, low)
}

func TestSplittingAStepIntoMicroBatchesChangesNothingButRounding(t *testing.T) {
	t.Parallel()
	whole, split := enginetest.NewBigram(vocab), enginetest.NewBigram(vocab)
	c := coldConfig()
	require.NoError(t, Imitate(t.Context(), c, split, counting{}, nil))
	c.MicroTokens = 1 << 20
	require.NoError(t, Imitate(t.Context(), c, whole, counting{}, nil))
	require.InDeltaSlice(t, whole.Table, split.Table, 1e-4)
}

func TestImitateNamesABadDemonstration(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, Imitate(t.Context(), coldConfig(), enginetest.NewBigram(vocab), broken{}, nil), "demonstration 0")
}
