package view

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/trainer/archive"
)

func drawFacts(t *rapid.T) *facts {
	f := newFacts("")
	for i := range rapid.IntRange(0, 60).Draw(t, "n") {
		started := rapid.Int64Range(2, 1000).Draw(t, "started")
		finished := started + rapid.Int64Range(0, 100).Draw(t, "took")
		e := archive.Entry{
			ID: key{uint64(i), 0}.id() + "-0", Fate: archive.FateTrained, Producer: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "producer"), Tokens: int(finished),
			Issued: started - 1, Started: started, Finished: finished, Ended: finished + 5, Spans: []int64{3, 4, archive.ToolSpan, rapid.Int64Range(0, finished-started).Draw(t, "tools")},
			Source: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "source"),
		}
		if rapid.Bool().Draw(t, "refused") {
			e.Fate, e.Reason = archive.FateRejected, "stale"
		}
		k, ok := sampleOf(e.ID)
		require.True(t, ok)
		f.at[k] = int32(len(f.all))
		f.all = append(f.all, fact{e, 1})
	}
	return f
}

// Invariant: rollouts of one lane do not overlap, and each is in a lane of its producer's.
func TestInvariantRolloutsOfOneLaneDoNotOverlap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		files := newFolder(Run{Name: "demo"})
		files.facts = drawFacts(t)
		l := files.lanes(0, 0)
		require.False(t, l.More)
		lanes := map[int][]LaneBar{}
		owner := map[int]string{}
		at := 0
		for _, p := range l.Producers {
			for range p.Lanes {
				owner[at] = p.Name
				at++
			}
			require.LessOrEqual(t, p.Busy, 1.0001)
		}
		shown := 0
		for _, e := range files.facts.all {
			if e.Ended >= l.From {
				shown++
			}
		}
		require.Len(t, l.Bars, shown)
		for _, b := range l.Bars {
			require.Equal(t, files.facts.get(b.ID).Producer, owner[b.Lane])
			lanes[b.Lane] = append(lanes[b.Lane], b)
		}
		for _, of := range lanes {
			slices.SortFunc(of, func(a, b LaneBar) int { return int(a.Started - b.Started) })
			for i := 1; i < len(of); i++ {
				require.LessOrEqual(t, of[i-1].Finished, of[i].Started)
			}
		}
		n := int64(len(l.Bars))
		require.Equal(t, n, l.Ages.Queue)
		require.Equal(t, 5*n, l.Ages.Waiting)
	})
}

func TestAStretchIsCutAtTheNewest(t *testing.T) {
	t.Parallel()
	files := newFolder(Run{Name: "demo"})
	for i := range maxBars + 10 {
		files.facts.all = append(files.facts.all, fact{archive.Entry{ID: key{uint64(i), 0}.id() + "-0", Started: 1, Finished: 2, Ended: int64(i + 2)}, 1})
	}
	l := files.lanes(0, 0)
	require.True(t, l.More)
	require.Len(t, l.Bars, maxBars)
}

func TestABadStretchIsRefused(t *testing.T) {
	t.Parallel()
	for _, v := range []map[string][]string{{"from": {"x"}}, {"from": {"-1"}}, {"from": {"5"}, "to": {"5"}}} {
		_, _, err := parseStretch(v)
		require.Error(t, err, "%v", v)
	}
}

// The distance is that of its definition, at every value.
func TestTheDistanceIsKolmogorovsAndSmirnovs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 9), func(n int) float64 { return float64(n) }), 1, 20)
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		slices.Sort(a)
		slices.Sort(b)
		share := func(of []float64, x float64) float64 {
			n := 0
			for _, v := range of {
				if v <= x {
					n++
				}
			}
			return float64(n) / float64(len(of))
		}
		want := 0.0
		for x := range 10 {
			want = max(want, math.Abs(share(a, float64(x))-share(b, float64(x))))
		}
		require.InDelta(t, want, distance(a, b), 1e-12)
	})
}

func TestBiasCountsEachTrajectoryOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		b := f.bias()
		require.Equal(t, len(f.all), b.Came)
		came, trained, late := 0, 0, 0
		for _, s := range b.Sources {
			require.Equal(t, s.Came, s.Trained+s.Flat+s.Late+s.Else)
			came, trained, late = came+s.Came, trained+s.Trained, late+s.Late
		}
		require.Equal(t, b.Came, came)
		require.Equal(t, b.Trained, trained)
		require.Equal(t, b.Came-b.Trained, late)
	})
}

// Refusing what is slow is seen, and alarms.
func TestABiasIsSeen(t *testing.T) {
	t.Parallel()
	f := newFacts("")
	for i := range 400 {
		e := archive.Entry{ID: key{uint64(i), 0}.id() + "-0", Fate: archive.FateTrained, Started: 1, Finished: int64(1 + i), Tokens: 10}
		if i > 200 {
			e.Fate, e.Reason = archive.FateRejected, "stale"
		}
		k, _ := sampleOf(e.ID)
		f.at[k] = int32(i)
		f.all = append(f.all, fact{e, 1})
	}
	b := f.bias()
	require.Contains(t, b.Alarm, "duration")
	require.InDelta(t, 0.5, b.Of[1].KS, 0.01)
	require.Zero(t, b.Of[0].KS)
}
