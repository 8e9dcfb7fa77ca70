package stats

import "math"

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
	f, err := w.Of(MomentsOf(x, mask))
	if err != nil {
		return err
	}
	f.All(x, out)
	return nil
}

// Of returns the linear map that whitens a sample of these moments.
func (w Whitening) Of(m Moments) (Linear, error) {
	mean, variance, err := m.unbiasedVariance(w.MeanEpsilon)
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
	for len(x) >= 4 && len(out) >= 4 {
		a, b, c, d := x[0]-centre, x[1]-centre, x[2]-centre, x[3]-centre
		out[0], out[1], out[2], out[3] = a*scale+shift, b*scale+shift, c*scale+shift, d*scale+shift
		x, out = x[4:], out[4:]
	}
	for t, v := range x {
		out[t] = l.At(v)
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
