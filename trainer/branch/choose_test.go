package branch_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/branch"
)

// trunk is a trajectory of one segment whose turns have these entropies, each of three tokens after one of a tool.
func trunk(entropies ...float64) *schemas.Trajectory {
	t := &schemas.Trajectory{Segments: []schemas.Segment{{}}}
	s := &t.Segments[0]
	for i, h := range entropies {
		s.Tokens, s.ActionMask, s.Logprobs, s.Versions = append(s.Tokens, 1), append(s.ActionMask, 0), append(s.Logprobs, 0), append(s.Versions, -1)
		turn := schemas.Turn{Start: len(s.Tokens), End: len(s.Tokens) + 3}
		if i < len(entropies)-1 {
			turn.Calls = []schemas.ToolCall{{Tool: "search"}}
		}
		t.Turns = append(t.Turns, turn)
		for range 3 {
			s.Tokens, s.ActionMask, s.Logprobs, s.Versions = append(s.Tokens, 2), append(s.ActionMask, 1), append(s.Logprobs, float32(-h)), append(s.Versions, 0)
		}
	}
	return t
}

// places are the trunks and turns of points.
func places(points []branch.Point) (out [][2]int) {
	for _, p := range points {
		out = append(out, [2]int{p.Trunk, p.Turns})
	}
	return out
}

// The worth of a place by hand: alpha 0.5, gamma 0.5, penalty 0.2, ln 7 = 1.9459.
func TestTheMostUnsureTurnsAreForkedFirst(t *testing.T) {
	c := branch.Default()
	c.Threshold = 0.35
	trunks := []*schemas.Trajectory{trunk(1, 0.5, 1.5, 1.2), trunk(1, 1.1), trunk(1, 0.1)}
	// Worth: 0.6285 at turn 2 of the first, 0.5257 at turn 1 of the second, 0.2687 of the third; then times 0.8, 0.6, 0.4.
	got := branch.Choose(c, trunks, 9, 7)
	require.Equal(t, [][2]int{{0, 2}, {1, 1}, {0, 2}, {1, 1}, {0, 2}}, places(got), "0.629, 0.526, 0.503, 0.421, 0.377; 0.315 is below")
	require.InDelta(t, 0.5/math.Log(7), got[0].Rise, 1e-6)
	require.Equal(t, places(got[:2]), places(branch.Choose(c, trunks, 2, 7)))

	c.Penalty = 0
	require.Equal(t, [][2]int{{0, 2}, {0, 2}, {0, 2}}, places(branch.Choose(c, trunks, 3, 7)))
	c.Penalty = 1
	require.Equal(t, [][2]int{{0, 2}, {1, 1}}, places(branch.Choose(c, trunks, 9, 7)), "each trunk once")
	c.Gamma = 0
	require.Equal(t, [][2]int{{0, 2}, {1, 1}, {2, 1}}, places(branch.Choose(c, trunks, 9, 7)), "of equal worth the first trunk")
	c.Threshold = 0.5
	require.Empty(t, branch.Choose(c, trunks, 9, 7), "worth the threshold is not worth more")
}

func TestATurnIsAPlaceOnlyWhereAToolAnsweredBeforeIt(t *testing.T) {
	c := branch.Default()
	for name, spoil := range map[string]func(*schemas.Trajectory){
		"one turn":       func(t *schemas.Trajectory) { t.Turns = t.Turns[:1] },
		"no turns":       func(t *schemas.Trajectory) { t.Turns = nil },
		"no call":        func(t *schemas.Trajectory) { t.Turns[0].Calls = nil },
		"several agents": func(t *schemas.Trajectory) { t.Segments = append(t.Segments, schemas.Segment{Agent: "b"}) },
		"too long":       func(*schemas.Trajectory) { c.MaxTokens = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { c = branch.Default() }()
			tr := trunk(1, 2)
			spoil(tr)
			require.Empty(t, branch.Choose(c, []*schemas.Trajectory{tr}, 4, 7))
		})
	}
	require.Len(t, branch.Choose(c, []*schemas.Trajectory{trunk(1, 2)}, 2, 7), 2)
	c.MaxTokens = 4
	require.Len(t, branch.Choose(c, []*schemas.Trajectory{trunk(1, 2)}, 2, 7), 2, "a fork of four tokens is not too long")
}

// The first tokens alone count.
func TestTheFirstTokensOfATurnSayHowUnsureItWas(t *testing.T) {
	tr := trunk(1, 1)
	tr.Segments[0].Logprobs[5] = -3 // the first of the second turn
	c := branch.Default()
	c.Tokens = 1
	require.InDelta(t, 2/math.Log(7), branch.Choose(c, []*schemas.Trajectory{tr}, 1, 7)[0].Rise, 1e-6)
	c.Tokens = 2
	require.InDelta(t, 1/math.Log(7), branch.Choose(c, []*schemas.Trajectory{tr}, 1, 7)[0].Rise, 1e-6)
	c.Tokens = 100
	require.InDelta(t, 2.0/3/math.Log(7), branch.Choose(c, []*schemas.Trajectory{tr}, 1, 7)[0].Rise, 1e-6)
}

// Choosing is greedy by worth: what is taken is never worth less than what is left, falls as it goes on, and is above the threshold; what is
// chosen of more forks begins with what is chosen of fewer; every place can be forked.
func TestPropertyTheChoiceIsGreedyByWorth(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := branch.Default()
		c.Alpha = rapid.Float64Range(0, 1).Draw(r, "alpha")
		c.Gamma = rapid.Float64Range(0, 2).Draw(r, "gamma")
		c.Penalty = rapid.Float64Range(0, 1).Draw(r, "penalty")
		c.Threshold = rapid.Float64Range(0.01, 1).Draw(r, "threshold")
		entropies := rapid.SliceOfN(rapid.SliceOfN(rapid.Float64Range(0, 3), 1, 5), 0, 4).Draw(r, "entropies")
		var trunks []*schemas.Trajectory
		for _, h := range entropies {
			trunks = append(trunks, trunk(h...))
		}
		n := rapid.IntRange(0, 12).Draw(r, "forks")
		points := branch.Choose(c, trunks, n, 50)
		require.LessOrEqual(r, len(points), n)
		fewer := branch.Choose(c, trunks, n/2, 50)
		require.LessOrEqual(r, len(fewer), len(points))
		for i, p := range fewer {
			require.Equal(r, points[i], p)
		}
		taken := make([]int, len(trunks))
		worth := func(p branch.Point) float64 {
			return (c.Alpha + c.Gamma*p.Rise) * max(0, 1-c.Penalty*float64(taken[p.Trunk]))
		}
		last := math.Inf(1)
		for _, p := range points {
			require.Positive(r, p.Turns)
			require.Less(r, p.Turns, len(trunks[p.Trunk].Turns))
			w := worth(p)
			require.Greater(r, w, c.Threshold)
			require.LessOrEqual(r, w, last+1e-9)
			for _, other := range points {
				require.GreaterOrEqual(r, w+1e-9, worth(other))
			}
			taken[p.Trunk]++
			last = w
		}
	})
}

func TestWrongSettingsAreNamed(t *testing.T) {
	require.NoError(t, branch.Default().Validate())
	c := branch.Config{Trunks: -1, Alpha: math.NaN(), Gamma: -1, Penalty: 2, Threshold: math.Inf(1)}
	err := c.Validate()
	for _, key := range []string{"trunks", "tokens", "alpha", "gamma", "penalty", "threshold", "max_tokens"} {
		require.ErrorContains(t, err, key)
	}
}
