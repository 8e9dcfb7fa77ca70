//go:build !purego && (amd64 || arm64)

package kernel

import (
	"sync"
	"unsafe"
)

// tile is a column panel for the assembly: m rows of A times a panel of B, with steps in bytes.
type tile struct {
	a        unsafe.Pointer
	ars, acs uintptr
	b        unsafe.Pointer
	brs      uintptr
	c        unsafe.Pointer
	ldc      uintptr
	m, k     int
	// load is 1 to add to C, 0 to overwrite it.
	load int
	// mask is the mask of the panel's last vector: bits for AVX-512, lanes for AVX2, their number for NEON, which has no masks.
	mask [8]uint32
	// half is true where B is bfloat16, pairs where A is too. The caller chooses the kernel by them.
	half, pairs bool
}

// buffers hold a panel of B, depth rows deep, and 48 rows of a transposed A, for any instruction set.
type buffers struct {
	b [128 * 64]float32
	a [256 * gathered]float32
}

// gathered is the number of rows of a transposed A that are copied together. If they were read in place, each tile's six floats
// would take a cache line of their own at every step along k.
const gathered = 48

// maxRows is the number of rows of A that stay in the second-level cache while panel after panel uses them.
const maxRows = 576

var free = sync.Pool{New: func() any { return new(buffers) }}

// computePanels fills the panels [jlo, jhi) of C in the rows [lo, hi).
func (s isa) computePanels(p *product, jlo, jhi, lo, hi int) {
	w := work{isa: s, product: p, copied: p.copiesPanels() && (p.bcs != 1 || hi-lo >= 24)}
	gather := p.acs != 1 && hi-lo >= gathered
	w.edge = !masks && p.packed == nil && p.n%s.vectorLanes() != 0
	if w.copied || w.edge || gather {
		buf := free.Get().(*buffers)
		defer free.Put(buf) // not w.buf: p would then escape to the heap at every product
		w.buf = buf
	}
	depth := s.panelDepth()
	if gather {
		// C is small and k long, so that each panel in turn uses the copied part of A.
		for p0 := 0; p0 < p.k; p0 += depth {
			w.computeGathered(p0, jlo, jhi, lo, hi)
		}
		return
	}
	for ; lo < hi; lo += maxRows {
		for j := jlo; j < jhi; j++ {
			for p0 := 0; p0 < p.k; p0 += depth {
				t, vectors := w.preparePanel(j, p0)
				w.computeRows(&t, vectors, j, p0, lo, min(lo+maxRows, hi))
			}
		}
	}
}

// work is a goroutine's part of a product.
type work struct {
	isa
	*product
	buf *buffers
	// copied is true where panels of B are copied to buf, edge where a panel that ends within a vector is.
	copied, edge bool
}

// preparePanel prepares up to panelDepth steps along k, from p0 on, of panel j, and returns its width in vectors.
func (w *work) preparePanel(j, p0 int) (t tile, vectors int) {
	p, width, lanes := w.product, w.panelWidth(), w.vectorLanes()
	col := j * width
	n := min(width, p.n-col)
	vectors = ceilDiv(n, lanes)
	t = tile{ldc: uintptr(4 * p.ldc), k: min(w.panelDepth(), p.k-p0)}
	w.setMask(&t, n-(vectors-1)*lanes)
	if p.acc || p0 > 0 {
		t.load = 1
	}
	switch {
	case p.packed != nil && p.packed.kind == halves:
		t.b, t.brs, t.half = unsafe.Pointer(&p.packed.half[col*p.k+p0*width]), uintptr(2*width), true
		return t, vectors
	case p.packed != nil:
		t.b, t.brs, t.pairs = unsafe.Pointer(&p.packed.data[col*p.k+p0*width]), uintptr(4*width), p.packed.kind == pairs
		return t, vectors
	case !w.copied && !(w.edge && n%lanes != 0):
		t.b, t.brs = unsafe.Pointer(&p.b[p0*p.brs+col]), uintptr(4*p.brs)
		return t, vectors
	case p.bcs == 1:
		for q := range t.k {
			from := (p0+q)*p.brs + col
			copy(w.buf.b[q*width:q*width+n], p.b[from:from+n])
		}
	default:
		w.packNT(w.buf.b[:], p.b[col*p.bcs+p0:], p.bcs, t.k, n)
	}
	t.b, t.brs = unsafe.Pointer(&w.buf.b), uintptr(4*width)
	return t, vectors
}

// computeRows computes the rows [lo, hi) of a panel, reading A in place.
func (w *work) computeRows(t *tile, vectors, j, p0, lo, hi int) {
	p := w.product
	t.a, t.ars, t.acs = unsafe.Pointer(&p.a[lo*p.ars+p0*p.acs]), uintptr(4*p.ars), uintptr(4*p.acs)
	t.c, t.m = unsafe.Pointer(&p.c[lo*p.ldc+j*w.panelWidth()]), hi-lo
	w.callKernel(t, vectors)
}

// computeGathered computes rows and panels from copies of A, whose rows lie along its columns. If panels of B are copied too,
// each is copied once for all rows; else each block of rows uses the panels in turn.
func (w *work) computeGathered(p0, jlo, jhi, lo, hi int) {
	if w.copied && jhi-jlo > 1 {
		for j := jlo; j < jhi; j++ {
			w.computeGathered(p0, j, j+1, lo, hi)
		}
		return
	}
	p := w.product
	var t tile
	var vectors int
	if w.copied {
		t, vectors = w.preparePanel(jlo, p0)
	}
	for i := lo; i < hi; i += gathered {
		whole := i+gathered <= hi
		if whole {
			w.gatherRows(&w.buf.a[0], p.a[i+p0*p.acs:], p.acs, min(w.panelDepth(), p.k-p0))
		}
		for j := jlo; j < jhi; j++ {
			if !w.copied {
				t, vectors = w.preparePanel(j, p0)
			}
			if !whole {
				w.computeRows(&t, vectors, j, p0, i, hi)
				continue
			}
			t.a, t.ars, t.acs = unsafe.Pointer(&w.buf.a), 4, 4*gathered
			t.c, t.m = unsafe.Pointer(&p.c[i*p.ldc+j*w.panelWidth()]), gathered
			w.callKernel(&t, vectors)
		}
	}
}

// packNT writes the transpose of n rows of k floats, ld apart, as k rows of a panel's width. The columns from n on are left as
// they are: the kernels mask them.
func (s isa) packNT(dst, src []float32, ld, k, n int) {
	width := s.panelWidth()
	k8, n8 := k/8*8, n/8*8
	if k8 > 0 {
		for j := 0; j < n8; j += 8 {
			_ = src[(j+7)*ld+k8-1]
			_ = dst[(k8-1)*width+j+7]
			transpose8(&dst[j], uintptr(4*width), &src[j*ld], uintptr(4*ld), k8/8)
		}
	}
	for j := range n {
		from := 0
		if j < n8 {
			from = k8
		}
		for q := from; q < k; q++ {
			dst[q*width+j] = src[j*ld+q]
		}
	}
}

// alignedFloats makes n floats that begin on a cache line.
func alignedFloats(n int) []float32 {
	x := make([]float32, n+16)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(x))) / 4 % 16)
	return x[skip : skip+n : skip+n]
}

// alignedHalves is alignedFloats for bfloat16.
func alignedHalves(n int) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(alignedFloats((n+1)/2)))), n)
}
