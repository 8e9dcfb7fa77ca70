package kernel

// product is one C = A B: A[i,p] at a[i*ars+p*acs], B[p,j] at b[p*brs+j*bcs], C[i,j] at c[i*ldc+j]. The
// steps bcs and either of ars and acs are 1.
type product struct {
	c        []float32
	ldc      int
	a        []float32
	ars, acs int
	b        []float32
	brs, bcs int
	m, k, n  int
	acc      bool
	// packed replaces b when not nil.
	packed *Packed
}

// minWork is the least number of multiply-adds worth handing to another goroutine.
const minWork = 1 << 20

// minRows is the least number of rows that pays for packing a panel of B once more.
const minRows = 96

// run computes the product. C is cut into blocks of whole column panels and ranges of rows; no block shares
// an element of C with another.
func (s isa) run(pool *Pool, p *product) {
	if p.m == 0 || p.n == 0 {
		return
	}
	if p.k == 0 {
		if !p.acc {
			for i := range p.m {
				clear(p.c[i*p.ldc : i*p.ldc+p.n])
			}
		}
		return
	}
	serial := pool.Workers() == 1 || p.m*p.k*p.n < 2*minWork
	switch {
	case serial && s == portable:
		gemmPortable(p, 0, p.m)
	case serial:
		s.compute(p, 0, ceil(p.n, s.panelWidth()), 0, p.m)
	default:
		shared := *p // p itself then stays on the caller's stack
		s.share(pool, &shared)
	}
}

// share is run on several workers.
func (s isa) share(pool *Pool, p *product) {
	if s == portable {
		grain := ceil(minWork/8, p.k*p.n)
		pool.ParallelFor(p.m, grain, func(lo, hi int) { gemmPortable(p, lo, hi) })
		return
	}
	panels := ceil(p.n, s.panelWidth())
	// Whole panels first when each must be copied, then once; rows first otherwise, so that the panels share
	// the rows of A.
	want := 4 * pool.Workers()
	cuts := max(1, min(want, p.m/48))
	if p.copies() {
		cuts = max(1, min(ceil(want, panels), p.m/minRows))
	}
	rows := ceil(ceil(p.m, cuts), 48) * 48
	cuts = ceil(p.m, rows)
	group := ceil(panels, max(1, want/cuts))
	groups := ceil(panels, group)
	work := min(p.m, rows) * p.k * min(p.n, group*s.panelWidth())
	pool.ParallelFor(groups*cuts, ceil(minWork, work), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			first, cut := i/cuts*group, i%cuts
			s.compute(p, first, min(first+group, panels), cut*rows, min((cut+1)*rows, p.m))
		}
	})
}

// copies is whether panels of B are copied before use: always when they must be transposed, and when the rows
// of B are so long that a panel would be spread over many pages.
func (p *product) copies() bool { return p.packed == nil && (p.bcs != 1 || p.brs > 512) }

func ceil(a, b int) int { return (a + b - 1) / b }

// Packed is a matrix B laid out for repeated products, as a decoder multiplies by the same weights at each
// step. It is a copy: Repack after the matrix has changed. Products with it have the bits of MatMulNT's.
type Packed struct {
	k, n int
	set  isa
	data []float32
}

// PackNT copies B[n,k], weights stored [out, in], for MatMulPacked.
func PackNT(b []float32, k, n int) *Packed {
	w := NewPacked(k, n)
	w.Repack(b)
	return w
}

// NewPacked is room for B[n,k], which Repack fills.
func NewPacked(k, n int) *Packed { return &Packed{k: k, n: n, set: best} }

// Shape is the k and n of the products.
func (w *Packed) Shape() (k, n int) { return w.k, w.n }

// Repack takes new contents of the same shape. They may come in parts, whose rows follow one another.
func (w *Packed) Repack(parts ...[]float32) {
	checkDims("Repack", 0, w.k, w.n)
	size := 0
	for _, b := range parts {
		size += len(b)
	}
	checkMatrix("Repack", "B", size, w.n, w.k, w.k)
	if w.set == portable {
		w.data = append(w.data[:0], window(parts, 0, w.n*w.k)...)
		return
	}
	width := w.set.panelWidth()
	if w.data == nil {
		w.data = aligned(ceil(w.n, width) * width * w.k)
	}
	for j := 0; j < w.n; j += width {
		rows := min(width, w.n-j)
		w.set.packNT(w.data[j*w.k:], window(parts, j*w.k, rows*w.k), w.k, w.k, rows)
	}
}

// window is n numbers from at on of parts laid end to end, copied where they lie in more than one.
func window(parts [][]float32, at, n int) []float32 {
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
	p.MatMulPackedStrided(c, w.n, a, w.k, w, m, acc)
}

// MatMulPackedStrided is MatMulPacked with A and C inside wider matrices.
func (p *Pool) MatMulPackedStrided(c []float32, ldc int, a []float32, lda int, w *Packed, m int, acc bool) {
	checkDims("MatMulPacked", m, w.k, w.n)
	checkMatrix("MatMulPacked", "C", len(c), m, w.n, ldc)
	checkMatrix("MatMulPacked", "A", len(a), m, w.k, lda)
	pr := &product{c: c, ldc: ldc, a: a, ars: lda, acs: 1, m: m, k: w.k, n: w.n, acc: acc, packed: w}
	if w.set == portable {
		pr.packed, pr.b, pr.brs, pr.bcs = nil, w.data, 1, w.k
	}
	w.set.run(p, pr)
}
