//go:build !purego

package kernel

// masks is true where the kernels can read and write a part of a vector.
const masks = true

// panelWidth is the number of columns of a panel of B; panelDepth is the number of its rows that fit the first-level cache.
func (s isa) panelWidth() int {
	if s == avx512 {
		return 64
	}
	return 16
}

func (s isa) panelDepth() int {
	if s == avx512 {
		return 128
	}
	return 256
}

func (s isa) vectorLanes() int {
	if s == avx512 {
		return 16
	}
	return 8
}

// gatherRows copies k rows of floats, step apart, to consecutive memory.
func (s isa) gatherRows(dst *float32, src []float32, step, k int) {
	_ = src[(k-1)*step+gathered-1]
	if s == avx2 {
		gather48AVX2(dst, &src[0], uintptr(4*step), k)
		return
	}
	gather48AVX512(dst, &src[0], uintptr(4*step), k)
}

func (s isa) setMask(t *tile, lanes int) {
	if s == avx512 {
		t.mask[0] = 1<<lanes - 1
		return
	}
	for i := range t.mask {
		t.mask[i] = 0
		if i < lanes {
			t.mask[i] = 0xffffffff
		}
	}
}

// callKernel runs the kernel for panels of this width.
func (s isa) callKernel(t *tile, vectors int) {
	switch {
	case t.half:
		s.callHalfKernel(t, vectors)
		return
	case t.pairs:
		callPairsKernel(t, vectors)
		return
	}
	if s == avx2 {
		switch {
		case vectors == 1:
			gemm1AVX2(t)
		case t.mask[7] != 0:
			gemmFullAVX2(t)
		default:
			gemm2AVX2(t)
		}
		return
	}
	switch vectors {
	case 1:
		gemm1AVX512(t)
	case 2:
		gemm2AVX512(t)
	case 3:
		gemm3AVX512(t)
	default:
		gemm4AVX512(t)
	}
}

// callHalfKernel is callKernel where B is bfloat16.
func (s isa) callHalfKernel(t *tile, vectors int) {
	if s == avx2 {
		switch {
		case vectors == 1:
			gemm1HalfAVX2(t)
		case t.mask[7] != 0:
			gemmFullHalfAVX2(t)
		default:
			gemm2HalfAVX2(t)
		}
		return
	}
	switch vectors {
	case 1:
		gemm1HalfAVX512(t)
	case 2:
		gemm2HalfAVX512(t)
	case 3:
		gemm3HalfAVX512(t)
	default:
		gemm4HalfAVX512(t)
	}
}

// callPairsKernel is callKernel where A and B are bfloat16.
func callPairsKernel(t *tile, vectors int) {
	switch vectors {
	case 1:
		gemm1PairsAVX512(t)
	case 2:
		gemm2PairsAVX512(t)
	case 3:
		gemm3PairsAVX512(t)
	default:
		gemm4PairsAVX512(t)
	}
}
