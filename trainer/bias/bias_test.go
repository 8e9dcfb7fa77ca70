package bias_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/bias"
)

// The distance from all trajectories is that of its definition, at every value, ties included.
func TestTheDistanceIsThatOfTheTrainedFromAll(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 9), func(n int) float64 { return float64(n) }), 1, 20)
		a, b := draw.Draw(t, "trained"), draw.Draw(t, "others")
		all := slices.Concat(a, b)
		share := func(of []float64, x int) float64 {
			n := 0
			for _, v := range of {
				if v <= float64(x) {
					n++
				}
			}
			return float64(n) / float64(len(of))
		}
		want := 0.0
		for x := range 10 {
			want = max(want, math.Abs(share(a, x)-share(all, x)))
		}
		c := bias.Compare(bias.NewSample(a, len(a)), bias.NewSample(b, len(b)))
		require.InDelta(t, want, c.Distance, 1e-12)
		require.GreaterOrEqual(t, c.P, 0.0)
		require.LessOrEqual(t, c.P, 1.0)
	})
}

// The probability against values of scipy.stats.kstwobign.sf, at samples so large that the correction for small ones does not count.
func TestTheProbabilityIsKolmogorovs(t *testing.T) {
	t.Parallel()
	const n = 20_000_000
	for at, want := range map[float64]float64{0.5: 0.9639452436, 1: 0.2699996717, 1.36: 0.0494858768, 1.95: 0.0009967, 2.5: 7.453e-6} {
		d := at / math.Sqrt(n/2)
		require.InEpsilon(t, want, bias.ProbabilityBeyond(d, n/2), 2e-3, "%v", at)
	}
}

// Where the end of a trajectory has nothing to do with its values, chance makes hardly an alarm: with ties, and with prompts whose rollouts
// are alike.
func TestChanceMakesNoAlarm(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	low, alarms := 0, 0
	const rounds = 2000
	for range rounds {
		var sides [2][]float64
		var prompts [2]int
		for range 60 {
			length := float64(random.IntN(6))
			side := min(1, random.IntN(3))
			prompts[side]++
			for range 8 {
				sides[side] = append(sides[side], length+float64(random.IntN(2)))
			}
		}
		if prompts[0] == 0 || prompts[1] == 0 {
			continue
		}
		c := bias.Compare(bias.NewSample(sides[0], prompts[0]), bias.NewSample(sides[1], prompts[1]))
		if c.P < 0.05 {
			low++
		}
		if c.Biased() {
			alarms++
		}
	}
	require.Less(t, low, rounds*5/100)
	require.LessOrEqual(t, alarms, 2)
}

func rollout(cursor uint64, took time.Duration) *schemas.Trajectory {
	at := time.Unix(1000, 0)
	return &schemas.Trajectory{
		Cursor: cursor, StartedAt: at, FinishedAt: at.Add(took), Segments: []schemas.Segment{{Tokens: make([]int32, 1+took/time.Second)}},
	}
}

// A run that refuses slow trajectories is biased in duration and length, and only the source that has them.
func TestRefusingTheSlowIsSeen(t *testing.T) {
	t.Parallel()
	var w, fair bias.Window
	random := rand.New(rand.NewPCG(3, 4))
	for i := range uint64(400) {
		took := time.Duration(math.Exp(random.NormFloat64()) * float64(5*time.Second))
		source, reason := "short", schemas.Reason("")
		if i%2 == 0 {
			source = "long"
			if took > 8*time.Second {
				reason = schemas.ReasonStale
			}
		}
		w.Add(rollout(i, took), source, "one", reason)
		fair.Add(rollout(i, took), source, "one", "")
	}
	m := w.Compare()
	require.True(t, m[bias.Duration].Biased(), "%+v", m)
	require.True(t, m[bias.Length].Biased(), "%+v", m)
	require.False(t, m[bias.Turns].Biased())
	require.InDelta(t, max(m[bias.Duration].Distance, m[bias.Length].Distance), m.LargestDistance(), 0)
	by := w.BySource()
	require.True(t, by["long"][bias.Duration].Biased())
	require.False(t, by["short"][bias.Duration].Biased())
	require.Nil(t, w.ByTask(), "a single task")
	for _, c := range fair.Compare() {
		require.Equal(t, bias.Comparison{Trained: 400, P: 1}, c)
	}
}

// The window holds a bounded number of trajectories, the newest; what the comparison leaves out does not enter it.
func TestTheWindowIsBounded(t *testing.T) {
	t.Parallel()
	var w bias.Window
	for i := range uint64(5000) {
		w.Add(rollout(i, time.Second), "", "", schemas.ReasonStale)
	}
	for i := range uint64(3000) {
		w.Add(rollout(i, time.Second), "", "", "")
		w.Add(rollout(i, time.Hour), "", "", schemas.ReasonZeroVariance)
	}
	require.Equal(t, bias.Comparison{Trained: 2048, P: 1}, w.Compare()[bias.Length])
	require.Nil(t, w.BySource())
}

// A run that cuts slow rollouts off before they end is biased in duration, though only their time is known.
func TestCuttingTheSlowOffIsSeen(t *testing.T) {
	t.Parallel()
	var w bias.Window
	for i := range uint64(300) {
		if i%4 == 0 {
			w.AddUnseen(i, "", "", 20)
			continue
		}
		w.Add(rollout(i, time.Second), "", "", "")
	}
	m := w.Compare()
	require.True(t, m[bias.Duration].Biased(), "%+v", m)
	require.Equal(t, bias.Comparison{Trained: 225, P: 1}, m[bias.Length])
}
