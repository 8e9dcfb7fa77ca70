package selection

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/trainer/stats"
)

func TestKeep(t *testing.T) {
	t.Parallel()
	solved := DefaultGroups()
	solved.MaxMean = 0.9
	halfOfExtremes := DefaultGroups() // L0's: groups that are all wrong or all right are dropped half of the time
	halfOfExtremes.DropRate, halfOfExtremes.ExtremesOnly, halfOfExtremes.KeepSingle = 0.5, true, false
	for _, c := range []struct {
		name    string
		rule    Groups
		rewards []float64
		u       float64
		want    bool
	}{
		{"unequal", DefaultGroups(), []float64{0, 1}, 0.3, true},
		{"equal", DefaultGroups(), []float64{0.5, 0.5}, 0.999, false},
		{"one", DefaultGroups(), []float64{1}, 0, true},
		{"L0 drops all right below the rate", halfOfExtremes, []float64{1, 1, 1}, 0.4, false},
		{"L0 keeps all right above the rate", halfOfExtremes, []float64{1, 1, 1}, 0.6, true},
		{"L0 keeps equal rewards between", halfOfExtremes, []float64{0.4, 0.4}, 0, true},
		{"solved", solved, []float64{1, 1, 0.9, 0.8}, 0, false},
		{"off", Groups{}, []float64{0, 0}, 0, true},
	} {
		keep, err := c.rule.Keep(c.rewards, c.u)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, keep, c.name)
	}
	_, err := DefaultGroups().Keep([]float64{0, math.NaN()}, 0)
	var fault *stats.BatchError
	require.ErrorAs(t, err, &fault)
	require.Equal(t, 1, fault.Row)
	_, err = DefaultGroups().Keep(nil, 0)
	require.ErrorAs(t, err, &fault)
}

func TestAccumulateStopsOrGivesUp(t *testing.T) {
	t.Parallel()
	a := Accumulate{Rows: 64, MaxRounds: 3}
	enough, err := a.Enough(64, 1)
	require.NoError(t, err)
	require.True(t, enough)
	enough, err = a.Enough(63, 2)
	require.NoError(t, err)
	require.False(t, enough)
	require.NoError(t, a.Validate())
	require.ErrorContains(t, Accumulate{Rows: -1}.Validate(), "max_rounds: 0")
	_, err = a.Enough(63, 3)
	require.ErrorIs(t, err, ErrTooFew)
}

func TestOverlongPenalty(t *testing.T) {
	t.Parallel()
	o := Overlong{Limit: 100, Buffer: 20, Factor: 0.5, Bounded: true}
	require.NoError(t, o.Validate())
	for length, want := range map[int]float64{10: 0, 80: 0, 90: -0.25, 100: -0.5, 120: -0.5} {
		require.InDelta(t, want, o.Penalty(length), 1e-12)
	}
	o.Bounded = false
	require.InDelta(t, -1, o.Penalty(120), 1e-12)
	require.Zero(t, DefaultOverlong().Penalty(1e6))
	require.True(t, Overlong{Mask: true}.Masks(true))
	require.False(t, Overlong{Mask: true}.Masks(false))
	require.ErrorContains(t, Overlong{Limit: 5, Buffer: 6}.Validate(), "buffer: 6")
}

func TestVoid(t *testing.T) {
	t.Parallel()
	require.False(t, Void([]Turn{{Called: true}, {Answered: true}}))
	require.True(t, Void([]Turn{{Called: true}, {}, {Answered: true}}))
	require.True(t, Void(nil))
	mask := []uint8{1, 1, 0, 1, 1}
	Drop([]int{0, 2, 4, 5}, mask, 0, 2)
	require.Equal(t, []uint8{0, 0, 0, 1, 0}, mask)
}

func TestBestOf(t *testing.T) {
	t.Parallel()
	best, err := BestOf(3, []float64{0, 1, 0.5, 1}, []float64{0, 2, 0, 1})
	require.NoError(t, err)
	require.Equal(t, []int{3, 1, 2}, best)
	best, err = BestOf(9, []float64{0, 1}, nil)
	require.NoError(t, err)
	require.Equal(t, []int{1, 0}, best)
}

func TestResampleOnCorrectKeepsProportions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rewards := rapid.SliceOfN(rapid.SampledFrom([]float64{0, 1}), 2, 20).Draw(t, "rewards")
		penalties := rapid.SliceOfN(rapid.Float64Range(0, 2), len(rewards), len(rewards)).Draw(t, "penalties")
		n := rapid.IntRange(0, len(rewards)).Draw(t, "n")
		taken, err := DefaultOnCorrect().Choose(n, rewards, penalties, rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed"))))
		require.NoError(t, err)
		require.Len(t, taken, n)
		right, all := 0.0, 0.0
		seen := map[int]bool{}
		for _, i := range taken {
			require.False(t, seen[i])
			seen[i] = true
			right += rewards[i]
		}
		for _, r := range rewards {
			all += r
		}
		require.LessOrEqual(t, math.Abs(right-all*float64(n)/float64(len(rewards))), 1.0)
		if n > 1 && all > 0 && all < float64(len(rewards)) {
			require.Positive(t, right, "a right one stays")
			require.Less(t, right, float64(n), "a wrong one stays")
		}
	})
}

func TestResampleOnCorrectPrefersCleanTrajectories(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	clean := 0
	for range 2000 {
		taken, err := DefaultOnCorrect().Choose(1, []float64{1, 1}, []float64{0, 1}, random)
		require.NoError(t, err)
		if taken[0] == 0 {
			clean++
		}
	}
	require.InDelta(t, 2000*10.0/11, clean, 80)
}

func TestResampleChooses(t *testing.T) {
	t.Parallel()
	rewards, penalties := []float64{1, 0, 1, 0.5}, []float64{1, 0, 0, 0}
	r := DefaultResample()
	require.NoError(t, r.Validate())
	taken, err := r.Choose(rewards, penalties, nil)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2, 3}, taken, "off")
	r.By = ResampleBest
	require.ErrorContains(t, r.Validate(), "take: 0")
	for take, want := range map[int][]int{1: {2}, 3: {0, 2, 3}, 9: {0, 1, 2, 3}} {
		r.Take = take
		require.NoError(t, r.Validate())
		taken, err = r.Choose(rewards, penalties, nil)
		require.NoError(t, err)
		require.Equal(t, want, taken)
	}
	r.By = "bets"
	require.ErrorContains(t, r.Validate(), `did you mean "best"?`)
}
