package stats

import "math"

// Sum is the sum of x where the mask is 1, and how many there are.
func Sum(x []float64, mask []uint8) (sum float64, n int) { return SumMasked(x, mask), Count(mask) }

// Mean is the mean of x where the mask is 1; epsilon is added to the count (verl adds 1e-8). Over nothing, with
// epsilon 0, it is 0.
func Mean(x []float64, mask []uint8, epsilon float64) float64 {
	sum, n := Sum(x, mask)
	return Divide(sum, float64(n)+epsilon)
}

// Divide is a/b, and 0 where b is 0.
func Divide(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Variance is that of x where the mask is 1, with epsilon in both means. Unbiased multiplies by n/(n-1).
// Fewer than two entries are an error.
func Variance(x []float64, mask []uint8, epsilon float64, unbiased bool) (mean, variance float64, err error) {
	return momentsOf(x, mask).variance(epsilon, unbiased)
}

// chunk is how many tokens are gone over twice while they are in the cache.
const chunk = 1 << 13

// momentsOf goes over memory once.
func momentsOf(x []float64, mask []uint8) Moments {
	var all Moments
	for lo := 0; lo < len(mask); lo += chunk {
		hi := min(lo+chunk, len(mask))
		all = all.Merge(MomentsOf(x[lo:hi], mask[lo:hi]))
	}
	return all
}

// Whitening brings x to mean 0 and variance 1 over the mask:
//
//	y = (x - mean) / sqrt(variance + VarianceEpsilon)
type Whitening struct {
	// MeanEpsilon is added to the counts of both means (verl: 1e-8).
	MeanEpsilon float64
	// VarianceEpsilon is added to the unbiased variance.
	VarianceEpsilon float64
	// KeepMean adds the mean back.
	KeepMean bool
}

// Apply writes y to out, which may be x, at every entry. A masked entry takes no part in the statistics; it is
// transformed all the same.
func (w Whitening) Apply(x []float64, mask []uint8, out []float64) error {
	f, err := w.Of(momentsOf(x, mask))
	if err != nil {
		return err
	}
	f.All(x, out)
	return nil
}

// Of is the map that whitens a sample of these moments.
func (w Whitening) Of(m Moments) (Linear, error) {
	mean, variance, err := m.variance(w.MeanEpsilon, true)
	if err != nil {
		return Linear{}, err
	}
	f := Linear{Centre: mean, Scale: 1 / math.Sqrt(variance+w.VarianceEpsilon)}
	if w.KeepMean {
		f.Shift = mean
	}
	return f, nil
}

// Linear is y = (x - Centre) Scale + Shift.
type Linear struct{ Centre, Scale, Shift float64 }

// At is y.
func (l Linear) At(x float64) float64 { return (x-l.Centre)*l.Scale + l.Shift }

// All writes y of every entry to out, which may be x.
func (l Linear) All(x, out []float64) {
	centre, scale, shift := l.Centre, l.Scale, l.Shift
	out = out[:len(x)]
	for t, v := range x {
		out[t] = (v-centre)*scale + shift
	}
}

// Masked writes y where the mask is 1 and 0 where it is 0 to out, which may be x.
func (l Linear) Masked(x []float64, mask []uint8, out []float64) {
	for lo := 0; lo < len(mask); {
		n, ones := FirstRun(mask[lo:])
		if ones {
			l.All(x[lo:lo+n], out[lo:lo+n])
		} else {
			clear(out[lo : lo+n])
		}
		lo += n
	}
}

// Identity leaves x as it is.
func Identity() Linear { return Linear{Scale: 1} }

// MeanStd is the mean of x and its unbiased standard deviation, 0 of fewer than two.
func MeanStd(x []float64) (mean, std float64) {
	n := float64(len(x))
	for _, v := range x {
		mean += v
	}
	mean = Divide(mean, n)
	for _, v := range x {
		std += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(Divide(std, n-1))
}
