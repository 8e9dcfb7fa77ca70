package native

import "sync"

// rowBlock is the number of rows that a piece of work takes through a block's matrices: enough to pay for reading them, few
// enough to stay in the cache. Sums over rows are gathered by row block, so the number is fixed.
const rowBlock = 128

// resizeBuffer returns *buf with length n, reallocated when it is too small. Contents are unspecified.
func resizeBuffer(buf *[]float32, n int) []float32 {
	if cap(*buf) < n {
		*buf = make([]float32, n+n/8)
	}
	*buf = (*buf)[:n]
	return *buf
}

// zeroBuffer is resizeBuffer with zeros.
func zeroBuffer(buf *[]float32, n int) []float32 {
	out := resizeBuffer(buf, n)
	clear(out)
	return out
}

// scratch is a worker's buffers, which grow on demand.
type scratch struct {
	row, norm, hidden, gate, scores, grads, logits, lora []float32
	sampler                                              sampler
}

// scratchPool lends scratch to workers. It holds as many as ever worked at once.
type scratchPool struct {
	mu   sync.Mutex
	free []*scratch
}

func (p *scratchPool) get() *scratch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		return s
	}
	return new(scratch)
}

func (p *scratchPool) put(s *scratch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
}

// forEachBlock calls f once for each block of size rows of [0, n), in parallel. The blocks do not depend on the number of
// threads.
func (e *Engine) forEachBlock(n, size int, f func(s *scratch, lo, hi int)) {
	e.pool.ParallelFor((n+size-1)/size, 1, func(first, last int) {
		s := e.scratch.get()
		defer e.scratch.put(s)
		for b := first; b < last; b++ {
			f(s, b*size, min((b+1)*size, n))
		}
	})
}
