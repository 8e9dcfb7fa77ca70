package kernel

import "fmt"

// Packed is a matrix B laid out for repeated products, as a decoder multiplies by the same weights at each
// step. It is a copy: Repack after the matrix has changed. Its numbers are float32, or bfloat16, which halves what
// a product reads; they are widened as they are read.
//
// Invariant: products with a Packed have the bits of MatMulNT's with the numbers that it holds.
type Packed struct {
	k, n int
	set  isa
	// bf16 says which of the two below there is.
	bf16 bool
	data []float32
	half []uint16
}

// PackNT copies B[n,k], weights stored [out, in], for MatMulPacked.
func PackNT(b []float32, k, n int) *Packed {
	w := NewPacked(k, n)
	w.Repack(b)
	return w
}

// NewPacked is room for B[n,k], which Repack fills.
func NewPacked(k, n int) *Packed { return &Packed{k: k, n: n, set: best} }

// NewPackedBF16 is NewPacked with half the memory: every number is rounded to bfloat16, to nearest, ties to even.
func NewPackedBF16(k, n int) *Packed { return &Packed{k: k, n: n, set: best, bf16: true} }

// Shape is the k and n of the products.
func (w *Packed) Shape() (k, n int) { return w.k, w.n }

// Repack takes new contents of the same shape. They may come in parts, whose rows follow one another.
func (w *Packed) Repack(parts ...[]float32) {
	w.check("Repack", total(parts))
	w.reserve()
	if w.set == portable {
		if w.bf16 {
			at := w.half
			for _, b := range parts {
				RoundBF16(at[:len(b)], b)
				at = at[len(b):]
			}
			return
		}
		at := w.data
		for _, b := range parts {
			at = at[copy(at, b):]
		}
		return
	}
	width, buf := w.set.panelWidth(), w.packing()
	for j := 0; j < w.n; j += width {
		rows := min(width, w.n-j)
		src := window(parts, j*w.k, rows*w.k)
		if w.bf16 {
			w.packHalf(buf, w.half[j*w.k:], rows, func(dst []float32, row, at int) { copy(dst, src[row*w.k+at:]) })
			continue
		}
		w.set.packNT(w.data[j*w.k:], src, w.k, w.k, rows)
	}
}

// RepackBF16 is Repack from bfloat16 numbers, each the upper half of a float32.
func (w *Packed) RepackBF16(parts ...[]uint16) {
	w.check("RepackBF16", total(parts))
	w.reserve()
	if w.set == portable {
		at := 0
		for _, b := range parts {
			if w.bf16 {
				copy(w.half[at:], b)
			} else {
				WidenBF16(w.data[at:at+len(b)], b)
			}
			at += len(b)
		}
		return
	}
	width, buf := w.set.panelWidth(), w.packing()
	for j := 0; j < w.n; j += width {
		rows := min(width, w.n-j)
		src := window(parts, j*w.k, rows*w.k)
		if w.bf16 {
			w.packHalf(buf, w.half[j*w.k:], rows, func(dst []float32, row, at int) { WidenBF16(dst, src[row*w.k+at:][:len(dst)]) })
			continue
		}
		if len(buf) < len(src) {
			buf = make([]float32, len(src))
		}
		WidenBF16(buf[:len(src)], src)
		w.set.packNT(w.data[j*w.k:], buf, w.k, w.k, rows)
	}
}

// packDepth is how many steps along k packHalf takes at once.
const packDepth = 64

// packing is the room in which packHalf lays a panel out: its rows, and their transpose.
func (w *Packed) packing() []float32 {
	if !w.bf16 {
		return nil
	}
	return make([]float32, 2*w.set.panelWidth()*packDepth)
}

// packHalf fills one panel of some rows, read by row in stretches along k.
func (w *Packed) packHalf(buf []float32, dst []uint16, rows int, read func(dst []float32, row, at int)) {
	width := w.set.panelWidth()
	in, out := buf[:width*packDepth], buf[width*packDepth:]
	for at := 0; at < w.k; at += packDepth {
		steps := min(packDepth, w.k-at)
		for row := range rows {
			read(in[row*packDepth:row*packDepth+steps], row, at)
		}
		w.set.packNT(out, in, packDepth, steps, rows)
		RoundBF16(dst[at*width:(at+steps)*width], out[:steps*width])
	}
}

// reserve makes the room, zeros.
func (w *Packed) reserve() {
	size := w.n * w.k
	if w.set != portable {
		width := w.set.panelWidth()
		size = ceil(w.n, width) * width * w.k
	}
	switch {
	case w.bf16 && w.half == nil:
		w.half = alignedHalf(size)
	case !w.bf16 && w.data == nil:
		w.data = aligned(size)
	}
}

func (w *Packed) check(op string, size int) {
	checkDims(op, 0, w.k, w.n)
	checkMatrix(op, "B", size, w.n, w.k, w.k)
}

// Row copies row j of B to dst, which has k numbers.
func (w *Packed) Row(dst []float32, j int) {
	checkLen("Row", "dst", len(dst), w.k)
	if j < 0 || j >= w.n {
		panic(fmt.Sprintf("kernel.Row: row %d of %d", j, w.n))
	}
	at, step := j*w.k, 1
	if w.set != portable {
		step = w.set.panelWidth()
		at = j/step*step*w.k + j%step
	}
	if w.bf16 {
		for q := range dst {
			dst[q] = widen(w.half[at+q*step])
		}
		return
	}
	for q := range dst {
		dst[q] = w.data[at+q*step]
	}
}

func total[T any](parts [][]T) int {
	n := 0
	for _, b := range parts {
		n += len(b)
	}
	return n
}

// window is n numbers from at on of parts laid end to end, copied where they lie in more than one.
func window[T any](parts [][]T, at, n int) []T {
	for n > 0 && at >= len(parts[0]) {
		at -= len(parts[0])
		parts = parts[1:]
	}
	if n == 0 {
		return nil
	}
	if at+n <= len(parts[0]) {
		return parts[0][at : at+n]
	}
	out := make([]T, 0, n)
	for ; len(out) < n; parts, at = parts[1:], 0 {
		out = append(out, parts[0][at:min(len(parts[0]), at+n-len(out))]...)
	}
	return out
}

// MatMulPacked is C[m,n] = A[m,k] W^T, added to C when acc is set.
func MatMulPacked(c, a []float32, w *Packed, m int, acc bool) {
	(*Pool)(nil).MatMulPacked(c, a, w, m, acc)
}

// MatMulPacked is the function of that name, its columns and rows shared among the pool's workers.
func (p *Pool) MatMulPacked(c, a []float32, w *Packed, m int, acc bool) {
	p.MatMulPackedStrided(c, w.n, a, w.k, w, m, acc)
}

// MatMulPackedStrided is MatMulPacked with A and C inside wider matrices.
func (p *Pool) MatMulPackedStrided(c []float32, ldc int, a []float32, lda int, w *Packed, m int, acc bool) {
	checkDims("MatMulPacked", m, w.k, w.n)
	checkMatrix("MatMulPacked", "C", len(c), m, w.n, ldc)
	checkMatrix("MatMulPacked", "A", len(a), m, w.k, lda)
	pr := &product{c: c, ldc: ldc, a: a, ars: lda, acs: 1, m: m, k: w.k, n: w.n, acc: acc, packed: w}
	if w.set == portable {
		pr.packed, pr.b, pr.half, pr.brs, pr.bcs = nil, w.data, w.half, 1, w.k
	}
	w.set.run(p, pr)
}
