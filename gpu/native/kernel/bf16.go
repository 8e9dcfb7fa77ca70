package kernel

import "math"

// WidenBF16 writes to dst the float32 of each bfloat16 of src. A bfloat16's bits are the upper half of a float32's.
func WidenBF16(dst []float32, src []uint16) {
	checkLen("WidenBF16", "src", len(src), len(dst))
	done := best.widenVectors(dst, src)
	for i, h := range src[done:] {
		dst[done+i] = widenOne(h)
	}
}

// RoundBF16 writes to dst the bfloat16 nearest to each float32 of src; of two that are equally near it takes the even. NaN
// stays NaN.
func RoundBF16(dst []uint16, src []float32) {
	checkLen("RoundBF16", "src", len(src), len(dst))
	done := best.roundVectors(dst, src)
	for i, x := range src[done:] {
		dst[done+i] = roundOne(x)
	}
}

func widenOne(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

func roundOne(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// addHalfDots is addDots where B is bfloat16.
func (p *product) addHalfDots(row, a []float32) {
	b := func(j int) []uint16 { return p.half[j*p.bcs:][:len(a)] }
	j := 0
	for ; j+4 <= len(row); j += 4 {
		s0, s1, s2, s3 := row[j], row[j+1], row[j+2], row[j+3]
		y0, y1, y2, y3 := b(j), b(j+1), b(j+2), b(j+3)
		for q, x := range a {
			s0 += float32(x * widenOne(y0[q]))
			s1 += float32(x * widenOne(y1[q]))
			s2 += float32(x * widenOne(y2[q]))
			s3 += float32(x * widenOne(y3[q]))
		}
		row[j], row[j+1], row[j+2], row[j+3] = s0, s1, s2, s3
	}
	for ; j < len(row); j++ {
		s := row[j]
		for q, y := range b(j) {
			s += float32(a[q] * widenOne(y))
		}
		row[j] = s
	}
}
