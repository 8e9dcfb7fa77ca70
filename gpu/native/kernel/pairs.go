package kernel

import (
	"math"
	"sync"
)

// rounded lends room for the rows of A that are rounded to pairs.
var rounded = sync.Pool{New: func() any { return new([]float32) }}

// roundRows returns m rows of k numbers, lda apart, as rows of pairs.
func roundRows(buf *[]float32, a []float32, lda, m, k int) []float32 {
	steps := (k + 1) / 2
	if cap(*buf) < m*steps {
		*buf = make([]float32, m*steps)
	}
	out := (*buf)[:m*steps]
	for i := range m {
		row, to := a[i*lda:i*lda+k], out[i*steps:(i+1)*steps]
		for q := range k / 2 {
			to[q] = joinPair(roundOne(row[2*q]), roundOne(row[2*q+1]))
		}
		if k%2 == 1 {
			to[steps-1] = joinPair(roundOne(row[k-1]), 0)
		}
	}
	return out
}

// joinPair puts two bfloat16 in the room of a float32; pairHalf takes one out.
func joinPair(first, second uint16) float32 {
	return math.Float32frombits(uint32(first) | uint32(second)<<16)
}

func pairHalf(p float32, i int) uint16 { return uint16(math.Float32bits(p) >> (16 * i)) }
