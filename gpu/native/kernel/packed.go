package kernel

import "fmt"

// Packed is a matrix B laid out for repeated products: a decoder multiplies by the same weights at each step. It is a copy:
// Repack after the matrix has changed. Its numbers are float32, or bfloat16, which halves the memory that a product reads; they
// are widened as they are read.
//
// Invariant: products with a Packed have the bits of MatMulNT's with the numbers that it holds.
type Packed struct {
	k, n int
	set  isa
	// kind tells which of data and half is used. Pairs are in data, two bfloat16 in the room of a float32.
	kind storage
	data []float32
	half []uint16
}

// storage is how a Packed holds its numbers.
type storage uint8

const (
	floats storage = iota
	// halves are bfloat16, widened where they are used.
	halves
	// pairs are bfloat16, two along k together; A's numbers are then paired too. If k is odd the last has a zero beside it.
	pairs
	// view is B in the caller's memory.
	view
)

// NewPacked is room for B[n,k], which Repack fills.
func NewPacked(k, n int) *Packed { return &Packed{k: k, n: n, set: best} }

// NewPackedBF16 is NewPacked with half the memory: every number is rounded to bfloat16, to nearest, ties to even.
func NewPackedBF16(k, n int) *Packed { return &Packed{k: k, n: n, set: best, kind: halves} }

// NewPackedDot is NewPackedBF16 for products that round A to bfloat16 too, twice as fast on a processor that has an instruction
// for it; where there is none it is NewPackedBF16. The numbers of the products then depend on the processor: not for results
// that must be the same everywhere.
func NewPackedDot(k, n int) *Packed {
	w := NewPackedBF16(k, n)
	if hasDot {
		w.kind = pairs
	}
	return w
}

// BF16 reports whether the numbers are bfloat16.
func (w *Packed) BF16() bool { return w.kind == halves || w.kind == pairs }

// Shape is the k and n of the products.
func (w *Packed) Shape() (k, n int) { return w.k, w.n }

// Repack takes new contents of the same shape. They may come in parts. The rows of the parts follow one another.
func (w *Packed) Repack(parts ...[]float32) {
	w.checkSize("Repack", totalLength(parts))
	w.allocateRoom()
	if w.set == portable {
		if w.kind == halves {
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
	width, buf := w.set.panelWidth(), w.packBuffers()
	for j := 0; j < w.n; j += width {
		rows := min(width, w.n-j)
		src := joinWindow(parts, j*w.k, rows*w.k)
		if w.kind != floats {
			w.packHalf(buf, j, rows, func(dst []float32, row, at int) { copy(dst, src[row*w.k+at:]) })
			continue
		}
		w.set.packNT(w.data[j*w.k:], src, w.k, w.k, rows)
	}
}

// packDepth is the number of steps along k that packHalf takes at once.
const packDepth = 64

// packBuffers is the room in which packHalf lays a panel out: its rows, and their transpose.
func (w *Packed) packBuffers() []float32 {
	if w.kind == floats {
		return nil
	}
	return make([]float32, 2*w.set.panelWidth()*packDepth)
}

// packHalf fills the panel at column j with some rows of B, read by row in stretches along k.
func (w *Packed) packHalf(buf []float32, j, rows int, read func(dst []float32, row, at int)) {
	width := w.set.panelWidth()
	in, out := buf[:width*packDepth], buf[width*packDepth:]
	for at := 0; at < w.k; at += packDepth {
		steps := min(packDepth, w.k-at)
		for row := range rows {
			read(in[row*packDepth:row*packDepth+steps], row, at)
		}
		w.set.packNT(out, in, packDepth, steps, rows)
		if w.kind == halves {
			RoundBF16(w.half[j*w.k+at*width:][:steps*width], out[:steps*width])
			continue
		}
		clear(out[steps*width : (steps+steps%2)*width])
		dst := w.data[j*w.depthSteps()+at/2*width:][:(steps+1)/2*width]
		for i := range dst {
			first, second := i/width*2*width+i%width, (i/width*2+1)*width+i%width
			dst[i] = joinPair(roundOne(out[first]), roundOne(out[second]))
		}
	}
}

// depthSteps is the number of numbers, or pairs, along k.
func (w *Packed) depthSteps() int {
	if w.kind == pairs {
		return (w.k + 1) / 2
	}
	return w.k
}

// allocateRoom allocates the numbers, zeros.
func (w *Packed) allocateRoom() {
	size := w.n * w.k
	if w.set != portable {
		width := w.set.panelWidth()
		size = ceilDiv(w.n, width) * width * w.depthSteps()
	}
	switch {
	case w.kind == halves && w.half == nil:
		w.half = alignedHalves(size)
	case w.kind != halves && w.data == nil:
		w.data = alignedFloats(size)
	}
}

func (w *Packed) checkSize(op string, size int) {
	checkDims(op, 0, w.k, w.n)
	checkFit(op, "B", size, w.n, w.k, w.k)
}

// Row copies row j of B to dst, which has k numbers.
func (w *Packed) Row(dst []float32, j int) {
	checkLen("Row", "dst", len(dst), w.k)
	if j < 0 || j >= w.n {
		panic(fmt.Sprintf("kernel.Row: row %d of %d", j, w.n))
	}
	at, step := j*w.k, 1
	if w.set != portable && w.kind != view {
		step = w.set.panelWidth()
		at = j/step*step*w.depthSteps() + j%step
	}
	for q := range dst {
		switch w.kind {
		case floats, view:
			dst[q] = w.data[at+q*step]
		case halves:
			dst[q] = widenOne(w.half[at+q*step])
		case pairs:
			dst[q] = widenOne(pairHalf(w.data[at+q/2*step], q%2))
		}
	}
}

func totalLength(parts [][]float32) int {
	n := 0
	for _, b := range parts {
		n += len(b)
	}
	return n
}

// joinWindow is n numbers from at on of the parts laid end to end. They are copied where they lie in more than a single part.
func joinWindow(parts [][]float32, at, n int) []float32 {
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
	out := make([]float32, 0, n)
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
	p.MatMulPackedStrided(Matrix{c, w.n}, Matrix{a, w.k}, w, m, acc)
}

// MatMulPackedStrided is MatMulPacked with A and C inside wider matrices.
func (p *Pool) MatMulPackedStrided(c, a Matrix, w *Packed, m int, acc bool) {
	checkDims("MatMulPacked", m, w.k, w.n)
	checkMatrix("MatMulPacked", "C", c, m, w.n)
	checkMatrix("MatMulPacked", "A", a, m, w.k)
	if w.kind == view {
		p.MatMulNTStrided(c, a, Matrix{w.data, w.k}, m, w.k, w.n, acc)
		return
	}
	pr := &product{c: c.Data, ldc: c.Stride, a: a.Data, ars: a.Stride, acs: 1, m: m, k: w.k, n: w.n, acc: acc, packed: w}
	if w.set == portable {
		pr.packed, pr.b, pr.half, pr.brs, pr.bcs = nil, w.data, w.half, 1, w.k
	}
	if w.kind == pairs && w.k > 0 {
		buf := rounded.Get().(*[]float32)
		defer rounded.Put(buf)
		pr.k = w.depthSteps()
		pr.a, pr.ars = roundRows(buf, a.Data, a.Stride, m, w.k), pr.k
	}
	w.set.runProduct(p, pr)
}
