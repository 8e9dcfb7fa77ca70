package compare

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/internal/report"
)

// Of a curve that is a sigmoid, half of it says where it ends.
func TestHalfOfASigmoidPredictsItsEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Float64Range(0, 0.4).Draw(t, "start")
		s := sigmoid{
			start: start, top: rapid.Float64Range(start+0.2, 1).Draw(t, "top"),
			middle: rapid.Float64Range(2, 12).Draw(t, "middle"), slope: rapid.Float64Range(1.5, 4).Draw(t, "slope"),
		}
		var curve report.Series
		for x := 0.0; x <= 60; x += 2 {
			curve.X, curve.Y = append(curve.X, x), append(curve.Y, s.valueAt(x))
		}
		end, ok := predictEnd(curve)
		require.True(t, ok)
		require.InDelta(t, s.valueAt(60), end, 0.02)
		// What comes after the half is not looked at, beside its version.
		for i := range curve.Y {
			if curve.X[i] > 30 {
				curve.Y[i] = 0
			}
		}
		again, _ := predictEnd(curve)
		require.InDelta(t, end, again, 0)
	})
}

func TestTooFewVersionsPredictNothing(t *testing.T) {
	t.Parallel()
	_, ok := predictEnd(report.Series{})
	require.False(t, ok)
	_, ok = predictEnd(report.Series{X: []float64{0, 2, 4, 6, 8, 10, 12}, Y: []float64{0, .1, .2, .3, .4, .5, .6}})
	require.False(t, ok)
	require.Equal(t, bounds{math.Inf(-1), math.Inf(1)}, (&Scores{}).valueOf(Term{Metric: "predicted"}))
}
