package batch

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// The tokens of a turn have the value of the state that the turn began in, and other tokens none; a batch of which a trajectory brings no
// values has none at all, but a trajectory that is passed over counts for nothing.
func TestTokensHaveTheValueOfTheirTurnsState(t *testing.T) {
	t.Parallel()
	tr := &schemas.Trajectory{
		Segments: []schemas.Segment{segment(1, 0, 1, 1, 0, 1), segment(1, 0, 0), segment(1, 0, 1, 0)},
		Turns:    []schemas.Turn{{Segment: 0, Start: 1, End: 3}, {Segment: 0, Start: 4, End: 5}, {Segment: 2, Start: 1, End: 2}},
		Values:   []schemas.StateValue{{Mean: 0.25, Samples: 1}, {Mean: -1, Samples: 1}, {Mean: 3, Samples: 1}},
	}
	bare := trajectory(0, 0, 0, 1, 7, 3)
	rows := func(members ...Member) []float64 {
		return NewRows(&Batch{Groups: []Taken{{Members: members}}}).StateValues
	}
	require.Equal(t, []float64{0, 0.25, 0.25, 0, -1, 0, 3, 0}, rows(Member{Trajectory: tr}))
	tr.Values[1].Samples = 0 // nobody could estimate it
	require.True(t, math.IsNaN(rows(Member{Trajectory: tr})[4]))
	tr.Values[1].Samples = 1
	require.Nil(t, rows(Member{Trajectory: tr}, Member{Trajectory: bare}))
	require.Equal(t, []float64{0, 0.25, 0.25, 0, -1, 0, 3, 0}, rows(Member{Trajectory: bare, PassedOver: true}, Member{Trajectory: tr}))
}

// Where the estimator reads the values of states, a sample without them is refused, and the reason names the key that brings them.
func TestASampleWithoutTheValuesOfItsStatesIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		needed bool
		values []schemas.StateValue
		want   string
	}{
		{false, nil, ""},
		{true, []schemas.StateValue{{Mean: 1, Samples: 2}}, ""},
		{true, nil, "0 values of states for 1 turns: set producer.values.samples where its producer runs"},
	} {
		a := New(Config{Run: "r", Groups: 1, MinGroup: 1, Values: c.needed, Check: Checker(64, 0), Bounds: Bounds{Reward: 100}}, Start{})
		a.Open(Group{Size: 1})
		tr := trajectory(0, 0, 0, 1, 1, 0)
		tr.Turns, tr.Values = []schemas.Turn{{Start: 1, End: 2}}, c.values
		e := a.Add(schemas.Delivery{Sequence: 1, Trajectory: tr})
		if c.want == "" {
			require.Empty(t, e.Verdicts)
			continue
		}
		require.Len(t, e.Verdicts, 1)
		require.Equal(t, schemas.ReasonPoisoned, e.Verdicts[0].Reason)
		require.Contains(t, e.Verdicts[0].Detail, c.want)
	}
}
