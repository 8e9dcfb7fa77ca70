package kernel

// product is C = A B: A[i,p] at a[i*ars+p*acs], B[p,j] at b[p*brs+j*bcs], C[i,j] at c[i*ldc+j]. The steps bcs and either of ars
// and acs are 1.
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
	// half replaces b in the portable kernel when not nil.
	half []uint16
}

// minWork is the least number of multiply-adds worth handing to another goroutine.
const minWork = 1 << 20

// minRows is the least number of rows that pays for packing a panel of B once more.
const minRows = 96

// runProduct computes the product. C is cut into blocks of whole column panels and ranges of rows; no block shares
// an element of C with another.
func (s isa) runProduct(pool *Pool, p *product) {
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
		s.computePanels(p, 0, ceilDiv(p.n, s.panelWidth()), 0, p.m)
	default:
		shared := *p // p itself then stays on the caller's stack
		s.shareProduct(pool, &shared)
	}
}

// shareProduct computes the product on several workers.
func (s isa) shareProduct(pool *Pool, p *product) {
	if s == portable {
		grain := ceilDiv(minWork/8, p.k*p.n)
		pool.ParallelFor(p.m, grain, func(lo, hi int) { gemmPortable(p, lo, hi) })
		return
	}
	panels := ceilDiv(p.n, s.panelWidth())
	// If each panel must be copied, it is cut by whole panels first, so that each is copied once. Else it is cut by rows first,
	// so that the panels share the rows of A.
	want := 4 * pool.Workers()
	cuts := max(1, min(want, p.m/48))
	if p.copiesPanels() {
		cuts = max(1, min(ceilDiv(want, panels), p.m/minRows))
	}
	rows := ceilDiv(ceilDiv(p.m, cuts), 48) * 48
	cuts = ceilDiv(p.m, rows)
	group := ceilDiv(panels, max(1, want/cuts))
	groups := ceilDiv(panels, group)
	work := min(p.m, rows) * p.k * min(p.n, group*s.panelWidth())
	pool.ParallelFor(groups*cuts, ceilDiv(minWork, work), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			first, cut := i/cuts*group, i%cuts
			s.computePanels(p, first, min(first+group, panels), cut*rows, min((cut+1)*rows, p.m))
		}
	})
}

// copiesPanels reports whether panels of B are copied before use: always when they must be transposed, and when the rows of B
// are so long that a panel would be spread over many pages.
func (p *product) copiesPanels() bool { return p.packed == nil && (p.bcs != 1 || p.brs > 512) }

func ceilDiv(a, b int) int { return (a + b - 1) / b }
