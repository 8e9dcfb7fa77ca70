//go:build !purego

package kernel

import "unsafe"

// firstElement is the first element's address; the assembly does not touch it when the length is 0.
func firstElement(x []float32) *float32 { return unsafe.SliceData(x) }

func foldLanes(out [4]float32) float32 { return (out[0] + out[1]) + (out[2] + out[3]) }

func (s isa) dotProduct(a, b []float32) float32 {
	if s != neon {
		return dotPortable(a, b)
	}
	var out [4]float32
	dotNEON(firstElement(a), firstElement(b), len(a), &out)
	return foldLanes(out)
}

func (s isa) axpy(y []float32, alpha float32, x []float32) {
	if s != neon {
		axpyPortable(y, alpha, x)
		return
	}
	axpyNEON(firstElement(y), firstElement(x), len(y), alpha)
}

func (s isa) scaleElements(x []float32, alpha float32) {
	if s != neon {
		scalePortable(x, alpha)
		return
	}
	scaleNEON(firstElement(x), len(x), alpha)
}

func (s isa) addElements(dst, a, b []float32) {
	if s != neon {
		addPortable(dst, a, b)
		return
	}
	addNEON(firstElement(dst), firstElement(a), firstElement(b), len(dst))
}

func (s isa) mulElements(dst, a, b []float32) {
	if s != neon {
		mulPortable(dst, a, b)
		return
	}
	mulNEON(firstElement(dst), firstElement(a), firstElement(b), len(dst))
}

func (s isa) sumElements(x []float32) float32 {
	if s != neon {
		return sumPortable(x)
	}
	var out [4]float32
	sumNEON(firstElement(x), len(x), &out)
	return foldLanes(out)
}

func (s isa) sumSquares(x []float32) float64 {
	if s != neon {
		return sumSquaresPortable(x)
	}
	var out [2]float64
	sumSquaresNEON(firstElement(x), len(x), &out)
	return out[0] + out[1]
}

func (s isa) maxElement(x []float32) float32 {
	if s != neon {
		return maxPortable(x)
	}
	var out [4]float32
	maxNEON(firstElement(x), len(x), &out)
	return max(out[0], out[1], out[2], out[3])
}

func (s isa) expElements(dst, src []float32) {
	if s != neon {
		expPortable(dst, src)
		return
	}
	expNEON(firstElement(dst), firstElement(src), len(src))
}

func (s isa) expSum(dst, src []float32, shift float32) float32 {
	if s != neon {
		return expSumPortable(dst, src, shift)
	}
	var out [4]float32
	expSumNEON(firstElement(dst), firstElement(src), len(src), &out, shift)
	return foldLanes(out)
}

func (s isa) swigluElements(dst, gate, up []float32) {
	if s != neon {
		swigluPortable(dst, gate, up)
		return
	}
	swigluNEON(firstElement(dst), firstElement(gate), firstElement(up), len(dst))
}

func (s isa) swigluGrad(dgate, dup, gate, up, dout []float32) {
	if s != neon {
		swigluGradPortable(dgate, dup, gate, up, dout)
		return
	}
	swigluGradNEON(firstElement(dgate), firstElement(dup), firstElement(gate), firstElement(up), firstElement(dout), len(dgate))
}

func (s isa) adamwElements(w, m, v, g []float32, k adamwScalars) {
	if s != neon {
		adamwPortable(w, m, v, g, k)
		return
	}
	adamwNEON(firstElement(w), firstElement(m), firstElement(v), firstElement(g), len(w), &k)
}

// widenVectors and roundVectors convert whole vectors and return the number of elements converted.
func (s isa) widenVectors(dst []float32, src []uint16) int {
	n := len(dst) / 4 * 4
	if s != neon || n == 0 {
		return 0
	}
	widenNEON(&dst[0], &src[0], n)
	return n
}

func (s isa) roundVectors(dst []uint16, src []float32) int {
	n := len(dst) / 4 * 4
	if s != neon || n == 0 {
		return 0
	}
	roundNEON(&dst[0], &src[0], n)
	return n
}
