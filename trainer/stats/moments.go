package stats

import "math"

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

// MeanStd is the mean of x and its unbiased standard deviation, 0 of fewer than two entries.
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

// Moments are the count, the mean and the sum of squared differences from it.
type Moments struct{ N, Mean, Squares float64 }

// MomentsOf are the moments of x where the mask is 1.
func MomentsOf(x []float64, mask []uint8) (m Moments) {
	for lo := 0; lo < len(mask); {
		n, ones := FirstRun(mask[lo:])
		if ones {
			m = m.Merge(MomentsOfAll(x[lo : lo+n]))
		}
		lo += n
	}
	return m
}

// chunk is how many entries are summed about their first entry. The fewer they are, the nearer the first is to their mean,
// and the less precision is lost in the difference of the sums.
const chunk = 1 << 10

// MomentsOfAll are the moments of all of x, in a single pass.
func MomentsOfAll(x []float64) (m Moments) {
	for len(x) > 0 {
		part := x[:min(chunk, len(x))]
		m, x = m.Merge(chunkMoments(part)), x[len(part):]
	}
	return m
}

// chunkMoments returns the moments of a chunk that is not empty.
func chunkMoments(x []float64) Moments {
	n, pivot := len(x), x[0]
	var sum, other, squares, others float64
	for len(x) >= 4 {
		a, b, c, d := x[0]-pivot, x[1]-pivot, x[2]-pivot, x[3]-pivot
		sum, other = sum+(a+b), other+(c+d)
		squares, others = squares+(a*a+b*b), others+(c*c+d*d)
		x = x[4:]
	}
	for _, v := range x {
		sum, squares = sum+(v-pivot), squares+(v-pivot)*(v-pivot)
	}
	return momentsAbout(pivot, n, sum+other, squares+others)
}

// momentsAbout come from the sums of n differences d from a pivot and of their squares:
//
//	mean = pivot + sum d / n,  squares = sum d^2 - (sum d)^2 / n
func momentsAbout(pivot float64, n int, sum, squares float64) Moments {
	mean := sum / float64(n)
	return Moments{N: float64(n), Mean: pivot + mean, Squares: max(0, squares-sum*mean)}
}

// Merge is the moments of both samples together (Chan et al., 1979).
func (m Moments) Merge(o Moments) Moments {
	switch {
	case o.N == 0:
		return m
	case m.N == 0:
		return o
	}
	n, d := m.N+o.N, o.Mean-m.Mean
	return Moments{N: n, Mean: m.Mean + d*o.N/n, Squares: m.Squares + o.Squares + d*d*m.N*o.N/n}
}

// unbiasedVariance returns the mean, with epsilon added to the count, and the unbiased variance about it.
func (m Moments) unbiasedVariance(epsilon float64) (mean, variance float64, err error) {
	if m.N < 2 {
		return 0, 0, Fault("Mask", -1, "%v action tokens: a variance needs two", m.N)
	}
	mean = m.Mean * m.N / (m.N + epsilon)
	variance = (m.Squares + m.N*(m.Mean-mean)*(m.Mean-mean)) / (m.N + epsilon)
	return mean, variance * m.N / (m.N - 1), nil
}
