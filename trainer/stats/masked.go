package stats

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Masked is x where m is 1 and 0 where m is 0, even if x is not a number; without a branch.
func Masked(x float64, m uint8) float64 {
	return math.Float64frombits(math.Float64bits(x) & -uint64(m))
}

// Count is the number of ones in a mask of zeros and ones.
func Count(mask []uint8) int {
	n := 0
	for len(mask) >= 8 {
		n += bits.OnesCount64(binary.LittleEndian.Uint64(mask))
		mask = mask[8:]
	}
	for _, m := range mask {
		n += int(m)
	}
	return n
}

// binaryMask says whether a mask holds only zeros and ones.
func binaryMask(mask []uint8) bool {
	var all uint64
	for len(mask) >= 8 {
		all |= binary.LittleEndian.Uint64(mask)
		mask = mask[8:]
	}
	for _, m := range mask {
		all |= uint64(m)
	}
	return all&^0x0101010101010101 == 0
}

// SumMasked is the sum of x where the mask is 1.
func SumMasked(x []float64, mask []uint8) float64 {
	sum := 0.0
	for lo := 0; lo < len(mask); {
		n, ones := FirstRun(mask[lo:])
		if ones {
			sum += Total(x[lo : lo+n])
		}
		lo += n
	}
	return sum
}

// Total is the sum of x.
func Total(x []float64) float64 {
	var a, b, c, d float64
	for len(x) >= 4 {
		a, b, c, d = a+x[0], b+x[1], c+x[2], d+x[3]
		x = x[4:]
	}
	for _, v := range x {
		a += v
	}
	return a + b + c + d
}

// Fill writes on where the mask is 1 and off where it is 0.
func Fill(x []float64, mask []uint8, on, off float64) {
	for lo := 0; lo < len(mask); {
		n, ones := FirstRun(mask[lo:])
		if ones {
			Set(x[lo:lo+n], on)
		} else {
			Set(x[lo:lo+n], off)
		}
		lo += n
	}
}

// Mask writes 0 where the mask is 0.
func Mask(x []float64, mask []uint8) {
	for lo := 0; lo < len(mask); {
		n, ones := FirstRun(mask[lo:])
		if !ones {
			clear(x[lo : lo+n])
		}
		lo += n
	}
}

// Moments are the count, the mean and the sum of squared differences from it.
type Moments struct{ N, Mean, Squares float64 }

// MomentsOf are those of x where the mask is 1.
func MomentsOf(x []float64, mask []uint8) Moments {
	n := float64(Count(mask))
	if n == 0 {
		return Moments{}
	}
	m := Moments{N: n, Mean: SumMasked(x, mask) / n}
	for lo := 0; lo < len(mask); {
		n, ones := FirstRun(mask[lo:])
		if ones {
			m.Squares += squares(x[lo:lo+n], m.Mean)
		}
		lo += n
	}
	return m
}

// squares is the sum of squared differences from the mean.
func squares(x []float64, mean float64) float64 {
	var a, b, c, d float64
	for len(x) >= 4 {
		e, f, g, h := x[0]-mean, x[1]-mean, x[2]-mean, x[3]-mean
		a, b, c, d = a+e*e, b+f*f, c+g*g, d+h*h
		x = x[4:]
	}
	for _, v := range x {
		a += (v - mean) * (v - mean)
	}
	return a + b + c + d
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

// variance is about a mean and with a count that epsilon was added to.
func (m Moments) variance(epsilon float64, unbiased bool) (mean, variance float64, err error) {
	if m.N < 2 {
		return 0, 0, Fault("Mask", -1, "%v action tokens: a variance needs two", m.N)
	}
	mean = m.Mean * m.N / (m.N + epsilon)
	variance = (m.Squares + m.N*(m.Mean-mean)*(m.Mean-mean)) / (m.N + epsilon)
	if unbiased {
		variance *= m.N / (m.N - 1)
	}
	return mean, variance, nil
}
