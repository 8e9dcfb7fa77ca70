//go:build !purego

package kernel

import "unsafe"

// firstElement is the first element's address; the assembly does not touch it when the length is 0.
func firstElement(x []float32) *float32 { return unsafe.SliceData(x) }

func (s isa) dotProduct(a, b []float32) float32 {
	switch s {
	case avx512:
		return dotAVX512(firstElement(a), firstElement(b), len(a))
	case avx2:
		return dotAVX2(firstElement(a), firstElement(b), len(a))
	}
	return dotPortable(a, b)
}

func (s isa) axpy(y []float32, alpha float32, x []float32) {
	switch s {
	case avx512:
		axpyAVX512(firstElement(y), firstElement(x), len(y), alpha)
	case avx2:
		axpyAVX2(firstElement(y), firstElement(x), len(y), alpha)
	default:
		axpyPortable(y, alpha, x)
	}
}

func (s isa) scaleElements(x []float32, alpha float32) {
	switch s {
	case avx512:
		scaleAVX512(firstElement(x), len(x), alpha)
	case avx2:
		scaleAVX2(firstElement(x), len(x), alpha)
	default:
		scalePortable(x, alpha)
	}
}

func (s isa) addElements(dst, a, b []float32) {
	switch s {
	case avx512:
		addAVX512(firstElement(dst), firstElement(a), firstElement(b), len(dst))
	case avx2:
		addAVX2(firstElement(dst), firstElement(a), firstElement(b), len(dst))
	default:
		addPortable(dst, a, b)
	}
}

func (s isa) mulElements(dst, a, b []float32) {
	switch s {
	case avx512:
		mulAVX512(firstElement(dst), firstElement(a), firstElement(b), len(dst))
	case avx2:
		mulAVX2(firstElement(dst), firstElement(a), firstElement(b), len(dst))
	default:
		mulPortable(dst, a, b)
	}
}

func (s isa) sumElements(x []float32) float32 {
	switch s {
	case avx512:
		return sumAVX512(firstElement(x), len(x))
	case avx2:
		return sumAVX2(firstElement(x), len(x))
	}
	return sumPortable(x)
}

func (s isa) sumSquares(x []float32) float64 {
	switch s {
	case avx512:
		return sumSquaresAVX512(firstElement(x), len(x))
	case avx2:
		return sumSquaresAVX2(firstElement(x), len(x))
	}
	return sumSquaresPortable(x)
}

func (s isa) maxElement(x []float32) float32 {
	switch s {
	case avx512:
		return maxAVX512(firstElement(x), len(x))
	case avx2:
		return maxAVX2(firstElement(x), len(x))
	}
	return maxPortable(x)
}

func (s isa) expElements(dst, src []float32) {
	switch s {
	case avx512:
		expAVX512(firstElement(dst), firstElement(src), len(src))
	case avx2:
		expAVX2(firstElement(dst), firstElement(src), len(src))
	default:
		expPortable(dst, src)
	}
}

func (s isa) expSum(dst, src []float32, shift float32) float32 {
	switch s {
	case avx512:
		return expSumAVX512(firstElement(dst), firstElement(src), len(src), shift)
	case avx2:
		return expSumAVX2(firstElement(dst), firstElement(src), len(src), shift)
	}
	return expSumPortable(dst, src, shift)
}

func (s isa) swigluElements(dst, gate, up []float32) {
	switch s {
	case avx512:
		swigluAVX512(firstElement(dst), firstElement(gate), firstElement(up), len(dst))
	case avx2:
		swigluAVX2(firstElement(dst), firstElement(gate), firstElement(up), len(dst))
	default:
		swigluPortable(dst, gate, up)
	}
}

func (s isa) swigluGrad(dgate, dup, gate, up, dout []float32) {
	switch s {
	case avx512:
		swigluGradAVX512(firstElement(dgate), firstElement(dup), firstElement(gate), firstElement(up), firstElement(dout), len(dgate))
	case avx2:
		swigluGradAVX2(firstElement(dgate), firstElement(dup), firstElement(gate), firstElement(up), firstElement(dout), len(dgate))
	default:
		swigluGradPortable(dgate, dup, gate, up, dout)
	}
}

func (s isa) adamwElements(w, m, v, g []float32, k adamwScalars) {
	switch s {
	case avx512:
		adamwAVX512(firstElement(w), firstElement(m), firstElement(v), firstElement(g), len(w), &k)
	case avx2:
		adamwAVX2(firstElement(w), firstElement(m), firstElement(v), firstElement(g), len(w), &k)
	default:
		adamwPortable(w, m, v, g, k)
	}
}

// widenVectors and roundVectors convert whole vectors and return the number of elements converted.
func (s isa) widenVectors(dst []float32, src []uint16) int {
	n := len(dst) / 16 * 16
	switch {
	case n == 0:
	case s == avx512:
		widenAVX512(&dst[0], &src[0], n)
	case s == avx2:
		widenAVX2(&dst[0], &src[0], n)
	default:
		return 0
	}
	return n
}

func (s isa) roundVectors(dst []uint16, src []float32) int {
	n := len(dst) / 16 * 16
	switch {
	case n == 0:
	case s == avx512:
		roundAVX512(&dst[0], &src[0], n)
	case s == avx2:
		roundAVX2(&dst[0], &src[0], n)
	default:
		return 0
	}
	return n
}
