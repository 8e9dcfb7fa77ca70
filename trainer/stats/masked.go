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

// everyByte has a 1 in each byte of a word.
const everyByte = 0x0101010101010101

// isBinaryMask reports whether a mask holds only zeros and ones.
func isBinaryMask(mask []uint8) bool {
	var all uint64
	for len(mask) >= 8 {
		all |= binary.LittleEndian.Uint64(mask)
		mask = mask[8:]
	}
	for _, m := range mask {
		all |= uint64(m)
	}
	return all&^everyByte == 0
}

// Sum returns the sum of x where the mask is 1, and the number of these entries.
func Sum(x []float64, mask []uint8) (sum float64, n int) {
	for lo := 0; lo < len(mask); {
		run, ones := FirstRun(mask[lo:])
		if ones {
			sum += Total(x[lo : lo+run])
			n += run
		}
		lo += run
	}
	return sum, n
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

// Fill writes on where the mask is 1 and off where it is 0: on everywhere first, which is fast, then off over it.
func Fill(x []float64, mask []uint8, on, off float64) {
	Set(x, on)
	if on == off {
		return
	}
	for lo := 0; lo < len(mask); {
		n, ones := FirstRun(mask[lo:])
		if !ones {
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
