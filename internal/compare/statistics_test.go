package compare

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestStatisticsByHand(t *testing.T) {
	t.Parallel()
	// Of four values the least and the greatest are cut, of three none is, of eight two at each end.
	require.InDelta(t, 2.5, interquartileMean([]float64{100, 2, 3, -50}), 1e-12)
	require.InDelta(t, 4, interquartileMean([]float64{1, 2, 9}), 1e-12)
	require.InDelta(t, 4.5, interquartileMean([]float64{1, 2, 3, 4, 5, 6, 7, 80}), 1e-12)
	require.True(t, math.IsNaN(interquartileMean(nil)))
	// 2 > 1, 2 < 3, 3 > 1, 3 = 3: 2.5 of 4.
	require.InDelta(t, 0.625, improvementProbability([]float64{2, 3}, []float64{1, 3}), 1e-12)
	// Two values have the resamples 00, 01, 10, 11: the means 0, 1/2, 1/2, 1. Of four results the 2.5 % quantile is at 0.075.
	got := bootstrapOne(2, func(drawn []int) float64 { return meanOf(pickValues([]float64{0, 1}, drawn)) })
	require.InDelta(t, 0.0375, got.Low, 1e-12)
	require.InDelta(t, 0.9625, got.High, 1e-12)
	seen := 0
	bootstrapTwo(2, 3, func(first, second []int) float64 {
		require.Len(t, first, 2)
		require.Len(t, second, 3)
		seen++
		return 0
	})
	require.Equal(t, 2*2*3*3*3, seen)
	require.InDelta(t, math.Inf(1), quantileOf([]float64{0, math.Inf(1)}, 0.5), 0)
	require.InDelta(t, 0, quantileOf([]float64{0, math.Inf(1)}, 0), 0)
}

func TestStatisticsHaveTheirProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 12)
		a, b := values.Draw(t, "a"), values.Draw(t, "b")
		mean := interquartileMean(a)
		require.GreaterOrEqual(t, mean, slices.Min(a)-1e-12)
		require.LessOrEqual(t, mean, slices.Max(a)+1e-12)
		require.InDelta(t, 1, improvementProbability(a, b)+improvementProbability(b, a), 1e-9)
		require.InDelta(t, 0.5, improvementProbability(a, a), 1e-9)
	})
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 5).Draw(t, "a")
		e := estimateMean(a)
		require.LessOrEqual(t, e.Interval.Low, e.Interval.High)
		require.GreaterOrEqual(t, e.Interval.Low, slices.Min(a)-1e-12)
		require.LessOrEqual(t, e.Interval.High, slices.Max(a)+1e-12)
		shifted := make([]float64, len(a))
		for i, v := range a {
			shifted[i] = v + 1
		}
		require.InDelta(t, e.Interval.Low+1, estimateMean(shifted).Interval.Low, 1e-9)
	})
}

// Where all resamples are too many they are drawn, the same each time, and near the normal interval of a mean.
func TestManyValuesAreDrawn(t *testing.T) {
	t.Parallel()
	values := make([]float64, 100)
	for i := range values {
		values[i] = float64(i % 2)
	}
	statistic := func(drawn []int) float64 { return meanOf(pickValues(values, drawn)) }
	got := bootstrapOne(len(values), statistic)
	require.Equal(t, got, bootstrapOne(len(values), statistic))
	require.InDelta(t, 0.5-1.96*0.05, got.Low, 0.015)
	require.InDelta(t, 0.5+1.96*0.05, got.High, 0.015)
}
