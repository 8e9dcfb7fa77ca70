//go:build !purego

package kernel

import "unsafe"

// masks is true where the kernels can read and write a part of a vector.
const masks = false

func (isa) panelWidth() int { return 16 }

func (isa) panelDepth() int { return 256 }

func (isa) vectorLanes() int { return 4 }

// gatherRows copies k rows of floats, step apart, to consecutive memory.
func (isa) gatherRows(dst *float32, src []float32, step, k int) {
	to := unsafe.Slice(dst, k*gathered)
	for q := range k {
		copy(to[q*gathered:(q+1)*gathered], src[q*step:])
	}
}

func (isa) setMask(t *tile, lanes int) { t.mask[0] = uint32(lanes) }

// edgeRows is the number of rows of C that are computed at once, in a copy, where C ends within a vector.
const edgeRows = 24

// callKernel runs the kernel for panels of this width.
func (s isa) callKernel(t *tile, vectors int) {
	if t.mask[0] == 4 {
		callWholeKernel(t, vectors)
		return
	}
	var c [edgeRows * 16]float32
	cols := 4*(vectors-1) + int(t.mask[0])
	row := func(i int) []float32 { return unsafe.Slice((*float32)(unsafe.Add(t.c, uintptr(i)*t.ldc)), cols) }
	for lo := 0; lo < t.m; lo += edgeRows {
		part := *t
		part.m = min(edgeRows, t.m-lo)
		part.a = unsafe.Add(t.a, uintptr(lo)*t.ars)
		part.c, part.ldc = unsafe.Pointer(&c), 4*16
		if t.load != 0 {
			for i := range part.m {
				copy(c[16*i:], row(lo+i))
			}
		}
		callWholeKernel(&part, vectors)
		for i := range part.m {
			copy(row(lo+i), c[16*i:])
		}
	}
}

// callWholeKernel is callKernel where the number of columns is a multiple of four.
func callWholeKernel(t *tile, vectors int) {
	if t.half {
		switch vectors {
		case 1:
			gemm1HalfNEON(t)
		case 2:
			gemm2HalfNEON(t)
		case 3:
			gemm3HalfNEON(t)
		default:
			gemm4HalfNEON(t)
		}
		return
	}
	switch vectors {
	case 1:
		gemm1NEON(t)
	case 2:
		gemm2NEON(t)
	case 3:
		gemm3NEON(t)
	default:
		gemm4NEON(t)
	}
}
