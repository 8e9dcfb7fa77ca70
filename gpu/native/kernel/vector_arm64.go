//go:build !purego

package kernel

import "unsafe"

// ptr is the first element's address; the assembly does not touch it when the length is 0.
func ptr(x []float32) *float32 { return unsafe.SliceData(x) }

func fold(out [4]float32) float32 { return (out[0] + out[1]) + (out[2] + out[3]) }

func (s isa) dot(a, b []float32) float32 {
	if s != neon {
		return dotPortable(a, b)
	}
	var out [4]float32
	dotNEON(ptr(a), ptr(b), len(a), &out)
	return fold(out)
}

func (s isa) axpy(y []float32, alpha float32, x []float32) {
	if s != neon {
		axpyPortable(y, alpha, x)
		return
	}
	axpyNEON(ptr(y), ptr(x), len(y), alpha)
}

func (s isa) scale(x []float32, alpha float32) {
	if s != neon {
		scalePortable(x, alpha)
		return
	}
	scaleNEON(ptr(x), len(x), alpha)
}

func (s isa) add(dst, a, b []float32) {
	if s != neon {
		addPortable(dst, a, b)
		return
	}
	addNEON(ptr(dst), ptr(a), ptr(b), len(dst))
}

func (s isa) mul(dst, a, b []float32) {
	if s != neon {
		mulPortable(dst, a, b)
		return
	}
	mulNEON(ptr(dst), ptr(a), ptr(b), len(dst))
}

func (s isa) sum(x []float32) float32 {
	if s != neon {
		return sumPortable(x)
	}
	var out [4]float32
	sumNEON(ptr(x), len(x), &out)
	return fold(out)
}

func (s isa) sumSquares(x []float32) float64 {
	if s != neon {
		return sumSquaresPortable(x)
	}
	var out [2]float64
	sumSquaresNEON(ptr(x), len(x), &out)
	return out[0] + out[1]
}

func (s isa) max(x []float32) float32 {
	if s != neon {
		return maxPortable(x)
	}
	var out [4]float32
	maxNEON(ptr(x), len(x), &out)
	return max(out[0], out[1], out[2], out[3])
}

func (s isa) exp(dst, src []float32) {
	if s != neon {
		expPortable(dst, src)
		return
	}
	expNEON(ptr(dst), ptr(src), len(src))
}

func (s isa) expSum(dst, src []float32, shift float32) float32 {
	if s != neon {
		return expSumPortable(dst, src, shift)
	}
	var out [4]float32
	expSumNEON(ptr(dst), ptr(src), len(src), &out, shift)
	return fold(out)
}

func (s isa) swiglu(dst, gate, up []float32) {
	if s != neon {
		swigluPortable(dst, gate, up)
		return
	}
	swigluNEON(ptr(dst), ptr(gate), ptr(up), len(dst))
}

func (s isa) swigluGrad(dgate, dup, gate, up, dout []float32) {
	if s != neon {
		swigluGradPortable(dgate, dup, gate, up, dout)
		return
	}
	swigluGradNEON(ptr(dgate), ptr(dup), ptr(gate), ptr(up), ptr(dout), len(dgate))
}

func (s isa) adamw(w, m, v, g []float32, k adamwScalars) {
	if s != neon {
		adamwPortable(w, m, v, g, k)
		return
	}
	adamwNEON(ptr(w), ptr(m), ptr(v), ptr(g), len(w), &k)
}

// widen and round do whole vectors and return how many elements they did.
func (s isa) widen(dst []float32, src []uint16) int {
	n := len(dst) / 4 * 4
	if s != neon || n == 0 {
		return 0
	}
	widenNEON(&dst[0], &src[0], n)
	return n
}

func (s isa) round(dst []uint16, src []float32) int {
	n := len(dst) / 4 * 4
	if s != neon || n == 0 {
		return 0
	}
	roundNEON(&dst[0], &src[0], n)
	return n
}
