package stats

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naive is the mean and the unbiased variance as one writes them first.
func naive(x []float64, mask []uint8) (mean, variance, n float64) {
	for t, m := range mask {
		if m != 0 {
			mean += x[t]
			n++
		}
	}
	mean /= n
	for t, m := range mask {
		if m != 0 {
			variance += (x[t] - mean) * (x[t] - mean)
		}
	}
	return mean, variance / (n - 1), n
}

func drawMasked(t *rapid.T) ([]float64, []uint8) {
	mask := rapid.SliceOfN(rapid.SampledFrom([]uint8{0, 1}), 0, 70).Draw(t, "mask")
	mask = append(mask, 1, 1)
	x := rapid.SliceOfN(rapid.Float64Range(-5, 5), len(mask), len(mask)).Draw(t, "x")
	for k, m := range mask {
		if m == 0 {
			x[k] = math.NaN()
		}
	}
	return x, mask
}

func TestMomentsAgainstNaive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x, mask := drawMasked(t)
		mean, variance, n := naive(x, mask)
		require.Equal(t, int(n), Count(mask))
		require.InDelta(t, mean, Mean(x, mask, 0), 1e-12)
		gotMean, gotVariance, err := MomentsOf(x, mask).unbiasedVariance(0)
		require.NoError(t, err)
		require.InDelta(t, mean, gotMean, 1e-12)
		require.InDelta(t, variance, gotVariance, 1e-10)
		cut := rapid.IntRange(0, len(x)).Draw(t, "cut")
		merged := MomentsOf(x[:cut], mask[:cut]).Merge(MomentsOf(x[cut:], mask[cut:]))
		require.InDelta(t, mean, merged.Mean, 1e-12)
		require.InDelta(t, variance*(n-1), merged.Squares, 1e-9)
	})
}

// The sums are about an entry of each chunk: neither a mean far from 0 nor an entry far from all others may cost digits.
func TestMomentsKeepTheirDigits(t *testing.T) {
	t.Parallel()
	x, mask := make([]float64, 5000), make([]uint8, 5000)
	for k := range x {
		x[k], mask[k] = 1e6+math.Sin(float64(k)), 1
	}
	for _, spoil := range []func(){func() {}, func() { x[0] = 2e6 }, func() { x[len(x)-1] = -3e6 }} {
		spoil()
		mean, variance, n := naive(x, mask)
		m := MomentsOfAll(x)
		require.InEpsilon(t, mean, m.Mean, 1e-12)
		require.InEpsilon(t, variance*(n-1), m.Squares, 1e-10)
		y := make([]float64, len(x))
		_, m = Scan(x, 0, 0, y)
		require.Equal(t, x, y)
		require.InEpsilon(t, mean, m.Mean, 1e-12)
		require.InEpsilon(t, variance*(n-1), m.Squares, 1e-10)
	}
	Set(x, 1e-3)
	require.Zero(t, MomentsOfAll(x).Squares)
}

func TestExpAgainstTheStandardOne(t *testing.T) {
	t.Parallel()
	e := NewExp()
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.OneOf(rapid.Float64Range(-40, 1), rapid.Float64()).Draw(t, "x")
		out := []float64{0}
		e.Of([]float64{x}, out)
		if want := math.Exp(x); want != 0 && Finite(want) {
			require.InEpsilon(t, want, out[0], 1e-15)
		} else {
			require.Equal(t, want, out[0])
		}
	})
	out := []float64{0, math.Inf(-1), math.NaN(), math.Inf(1)}
	e.Of(out, out)
	require.Equal(t, []float64{1, 0}, out[:2])
	require.True(t, math.IsNaN(out[2]) && math.IsInf(out[3], 1))
}

func TestSetWritesAllAndNoMore(t *testing.T) {
	t.Parallel()
	for n := range 300 {
		x := make([]float64, n+1)
		Set(x[:n], -2.5)
		for _, v := range x[:n] {
			require.Equal(t, -2.5, v)
		}
		require.Zero(t, x[n])
	}
}

func TestWhiteningGivesMeanZeroAndVarianceOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x, mask := drawMasked(t)
		if _, variance, _ := naive(x, mask); variance < 1e-6 {
			t.Skip("no spread to whiten")
		}
		y := make([]float64, len(x))
		require.NoError(t, Whitening{}.Apply(x, mask, y))
		mean, variance, _ := naive(y, mask)
		require.InDelta(t, 0, mean, 1e-9)
		require.InDelta(t, 1, variance, 1e-9)
	})
}

func TestScanAgainstItsRecursion(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Float64Range(-3, 3), 0, 30).Draw(t, "x")
		decay, follows := rapid.Float64Range(0, 1).Draw(t, "decay"), rapid.Float64Range(-3, 3).Draw(t, "follows")
		out := make([]float64, len(x))
		first, m := Scan(x, decay, follows, out)
		y := follows
		for k, v := range slices.Backward(x) {
			y = v + decay*y
			require.InDelta(t, y, out[k], 1e-12)
		}
		require.InDelta(t, y, first, 1e-12)
		require.Equal(t, MomentsOfAll(out).N, m.N)
		require.InDelta(t, MomentsOfAll(out).Mean, m.Mean, 1e-12)
		require.InDelta(t, MomentsOfAll(out).Squares, m.Squares, 1e-9)
		again, _ := Scan(x, decay, follows, x)
		require.Equal(t, first, again, "in place")
	})
}

func TestRunsCoverTheMask(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var mask []uint8
		for k, n := range rapid.SliceOfN(rapid.IntRange(1, 40), 1, 8).Draw(t, "runs") {
			mask = append(mask, bytes.Repeat([]byte{uint8(k % 2)}, n)...)
		}
		rebuilt := []uint8{}
		for rest := mask; len(rest) > 0; {
			end, ones := FirstRun(rest)
			for range end {
				rebuilt = append(rebuilt, map[bool]uint8{true: 1}[ones])
			}
			rest = rest[end:]
		}
		require.Equal(t, mask, rebuilt)
		for hi := len(mask); hi > 0; {
			lo, ones := LastRun(mask[:hi])
			for k := lo; k < hi; k++ {
				require.Equal(t, ones, mask[k] == 1)
			}
			if lo > 0 {
				require.NotEqual(t, ones, mask[lo-1] == 1)
			}
			hi = lo
		}
	})
}

func TestParallelCoversEachPartOnceAndReportsTheFirstFault(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 7, 1000} {
		seen := make([]int, n)
		require.NoError(t, Parallel(n, 1<<22, func(lo, hi int) error {
			for k := lo; k < hi; k++ {
				seen[k]++
			}
			return nil
		}))
		for k, times := range seen {
			require.Equal(t, 1, times, k)
		}
	}
	first := errors.New("first")
	err := Parallel(1000, 1<<22, func(lo, _ int) error {
		if lo == 0 {
			return first
		}
		return errors.New("later")
	})
	require.ErrorIs(t, err, first)
}

func TestFillAndMaskedTakeNoNotice(t *testing.T) {
	t.Parallel()
	x := []float64{math.NaN(), math.Inf(1), 3}
	Fill(x, []uint8{1, 0, 1}, -2, 0.5)
	require.Equal(t, []float64{-2, 0.5, -2}, x)
	require.Zero(t, Masked(math.NaN(), 0))
	require.Equal(t, 2.5, Masked(2.5, 1))
	sum, n := Sum([]float64{math.NaN(), 1, math.Inf(1), 2, 0.5}, []uint8{0, 1, 0, 1, 1})
	require.Equal(t, 3.5, sum)
	require.Equal(t, 3, n)
}

func TestNormalizationByGroup(t *testing.T) {
	t.Parallel()
	n := Normalization{Mean: LevelGroup, Std: LevelNone, LeaveOneOut: true}
	require.NoError(t, n.Validate())
	y := make([]float64, 4)
	require.NoError(t, n.Apply([]float64{1, 0, 3, 7}, []int{0, 1, 2, 3, 4}, nil, []int{0, 0, 0, -1}, nil, y))
	require.InDeltaSlice(t, []float64{-0.5, -2, 2.5, 7}, y, 1e-12)
	var fault *BatchError
	require.ErrorContains(t, n.Apply([]float64{1, 2}, []int{0, 1, 2}, nil, []int{0, 0}, []int{0}, y), "Trajectory")
	require.ErrorAs(t, n.Apply([]float64{1, math.NaN()}, []int{0, 1, 2}, nil, []int{0, 0}, nil, y), &fault)
	require.Equal(t, 1, fault.Row)
	require.ErrorContains(t, Normalization{Mean: "groups", Std: LevelNone}.Validate(), `did you mean "group"?`)
}

// Finding 12a.11: where a context begins anew changes no normalized entry, also in a group of one trajectory.
func TestNormalizationCountsTrajectories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var x []float64
		var mask []uint8
		offsets, cuts := []int{0}, []int{0}
		var groups, cutGroups, trajectories []int
		for g := range rapid.IntRange(1, 3).Draw(t, "groups") {
			for range rapid.IntRange(1, 3).Draw(t, "trajectories") {
				for range rapid.IntRange(1, 3).Draw(t, "contexts") {
					for range rapid.IntRange(1, 3).Draw(t, "tokens") {
						x = append(x, rapid.Float64Range(-3, 3).Draw(t, "x"))
						mask = append(mask, rapid.SampledFrom([]uint8{0, 1, 1}).Draw(t, "mask"))
					}
					cuts, cutGroups, trajectories = append(cuts, len(x)), append(cutGroups, g), append(trajectories, len(groups))
				}
				offsets, groups = append(offsets, len(x)), append(groups, g)
			}
		}
		levels := rapid.SampledFrom([]string{LevelNone, LevelBatch, LevelGroup})
		n := Normalization{
			Mean: levels.Draw(t, "mean"), Std: levels.Draw(t, "std"), LeaveOneOut: rapid.Bool().Draw(t, "leave one out"),
			Biased: rapid.Bool().Draw(t, "biased"), Epsilon: 0.5, // a deviation may be next to nothing
		}
		want, got := make([]float64, len(x)), make([]float64, len(x))
		require.NoError(t, n.Apply(x, offsets, mask, groups, nil, want))
		require.NoError(t, n.Apply(x, cuts, mask, cutGroups, trajectories, got))
		require.InDeltaSlice(t, want, got, 1e-9, "%+v", n)
	})
}
