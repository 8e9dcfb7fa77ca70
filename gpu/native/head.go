package native

import (
	"math"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

const (
	// headLogits bounds a worker's logits, in floats; headRows is the number of rows that it takes at once. wideRows is the
	// number of rows that all workers take together.
	headLogits = 1 << 21
	headRows   = 64
	wideRows   = 128
	// gradLogits bounds the logits' gradients held at once, in floats, over all workers.
	gradLogits = 1 << 22
)

// hasWideVocabulary reports whether the vocabulary is so large that a worker's logits of enough rows fit no scratch: all workers then share each
// product with the head, over wideRows rows at once.
func (l *layout) hasWideVocabulary() bool { return l.v > headLogits/headRows }

// headForward fills the outputs from the last block's output.
func (e *Engine) headForward() {
	m := len(e.plan.rows)
	if !e.hasWideVocabulary() || e.plan.valuesOnly {
		e.forEachBlock(m, headRows, func(s *scratch, lo, hi int) {
			h := e.headInput(lo, hi)
			if e.plan.valuesOnly {
				return
			}
			logits := resizeBuffer(&s.logits, (hi-lo+1)*e.v)
			exps := logits[(hi-lo)*e.v:]
			kernel.MatMulPacked(logits[:(hi-lo)*e.v], h, e.fast.head, hi-lo, false)
			for r := lo; r < hi; r++ {
				e.headOutput(r, logits[(r-lo)*e.v:(r-lo+1)*e.v], exps)
			}
		})
		return
	}
	for first := 0; first < m; first += wideRows {
		n := min(wideRows, m-first)
		logits := resizeBuffer(&e.gradScratch.logits, n*e.v)
		e.pool.MatMulPacked(logits, e.headInput(first, first+n), e.fast.head, n, false)
		e.forEachBlock(n, 1, func(s *scratch, lo, hi int) {
			for r := lo; r < hi; r++ {
				e.headOutput(first+r, logits[r*e.v:(r+1)*e.v], resizeBuffer(&s.logits, e.v))
			}
		})
	}
}

// headInput normalizes rows [lo, hi) of the last block's output and fills their values.
func (e *Engine) headInput(lo, hi int) []float32 {
	p, a := &e.plan, &e.acts
	h := a.hidden[lo*e.d : hi*e.d]
	e.normalizeRows(h, a.last[lo*e.d:hi*e.d], e.w.norm, a.inv[lo:hi])
	if e.w.value != nil {
		for r := lo; r < hi; r++ {
			e.out.Values[p.rows[r]+1] = kernel.Dot(h[(r-lo)*e.d:(r-lo+1)*e.d], e.w.value)
		}
	}
	return h
}

// headOutput fills the other outputs of row r from its logits; exps is room for as many numbers.
func (e *Engine) headOutput(r int, logits, exps []float32) {
	p, a := &e.plan, &e.acts
	i := p.rows[r] + 1
	logZ, entropy, squares := logitStatistics(logits, exps, p.temps[r])
	a.logZ[r], a.entropy[r] = logZ, entropy
	e.out.Logprobs[i] = logits[p.tokens[i]] - logZ
	e.out.Entropies[i], e.out.ProbSquares[i] = entropy, squares
}

// logitStatistics divides a row of logits by the temperature in place and returns the log of the sum of their
// exponentials, the entropy log Z - sum p x and the sum of p squared. exps is room for as many numbers.
func logitStatistics(row, exps []float32, temperature float32) (logZ, entropy, squares float32) {
	if temperature != 1 {
		kernel.Scale(row, 1/temperature)
	}
	top := kernel.Max(row)
	sum := kernel.ExpSum(exps, row, top)
	logZ = top + float32(math.Log(float64(sum)))
	return logZ, max(0, logZ-kernel.Dot(exps, row)/sum), kernel.Dot(exps, exps) / sum / sum
}

// headBackward adds the gradients of the head, the value head and the last norm, and sets dlast, the gradient of the last
// block's output.
func (e *Engine) headBackward(dlast []float32, g *gpu.Gradients) {
	p, a := &e.plan, &e.acts
	m := len(p.rows)
	dhidden := zeroBuffer(&e.gradScratch.hidden, m*e.d)
	if g.Logprobs != nil || g.Entropies != nil {
		e.logitsBackward(dhidden, g)
	}
	if g.Values != nil {
		for r, row := range p.rows {
			up := g.Values[row+1]
			kernel.Axpy(e.g.value, up, a.hidden[r*e.d:(r+1)*e.d])
			if !g.Detached {
				kernel.Axpy(dhidden[r*e.d:(r+1)*e.d], up, e.w.value)
			}
		}
	}
	clear(dlast)
	e.sumBlocks(m, func(s *scratch, dgain []float32, lo, hi int) {
		e.normalizeRowsGrad(s, dlast[lo*e.d:hi*e.d], dgain, dhidden[lo*e.d:hi*e.d], a.last[lo*e.d:hi*e.d], e.w.norm, a.inv[lo:hi])
	}, e.g.norm)
}

// gradRows is the number of rows whose logits are computed again at once. It is large, since the head's gradient is read and
// written each time.
func (l *layout) gradRows() int {
	if l.hasWideVocabulary() {
		return wideRows
	}
	return gradLogits / l.v / headRows * headRows
}

// logitsBackward adds the head's gradient and sets the gradient of its input.
func (e *Engine) logitsBackward(dhidden []float32, g *gpu.Gradients) {
	p, a := &e.plan, &e.acts
	m := len(p.rows)
	chunk := e.gradRows()
	for first := 0; first < m; first += chunk {
		n := min(chunk, m-first)
		dlogits := resizeBuffer(&e.gradScratch.logits, n*e.v)
		size, pool := headRows, (*kernel.Pool)(nil)
		if n <= headRows || e.hasWideVocabulary() { // the workers share a single block
			size, pool = n, e.pool
		}
		e.forEachBlock(n, size, func(s *scratch, lo, hi int) {
			at := first + lo
			dl := dlogits[lo*e.v : hi*e.v]
			pool.MatMulPacked(dl, a.hidden[at*e.d:(first+hi)*e.d], e.fast.head, hi-lo, false)
			e.forEachRow(s, hi-lo, pool != nil, func(s *scratch, k int) {
				i := p.rows[at+k] + 1
				e.logitsGrad(s, dl[k*e.v:(k+1)*e.v], at+k, gradientAt(g.Logprobs, i), gradientAt(g.Entropies, i))
			})
			pool.MatMul(dhidden[at*e.d:(first+hi)*e.d], dl, e.w.head, hi-lo, e.v, e.d, false)
		})
		if e.g.head == nil {
			continue
		}
		e.pool.MatMulTN(e.g.head, dlogits, a.hidden[first*e.d:(first+n)*e.d], e.v, n, e.d, true)
	}
}

// forEachRow calls f for each of n rows, on the worker that has s, or shared among the idle workers.
func (e *Engine) forEachRow(s *scratch, n int, shared bool, f func(s *scratch, row int)) {
	if !shared {
		for row := range n {
			f(s, row)
		}
		return
	}
	e.forEachBlock(n, 1, func(s *scratch, lo, hi int) {
		for row := lo; row < hi; row++ {
			f(s, row)
		}
	})
}

// logitsGrad turns row r's logits into the gradient of the loss with respect to them. With x = logits/T,
// p = softmax(x) and H its entropy:
//
//	d log p(token)/dx_j = 1{j=token} - p_j        dH/dx_j = -p_j (log p_j + H)
func (e *Engine) logitsGrad(s *scratch, row []float32, r int, gLogprob, gEntropy float32) {
	if gLogprob == 0 && gEntropy == 0 {
		clear(row)
		return
	}
	p, logZ := &e.plan, e.acts.logZ[r]
	inverse := 1 / p.temps[r]
	token := p.tokens[p.rows[r]+1]
	if inverse != 1 {
		kernel.Scale(row, inverse)
	}
	if gEntropy == 0 {
		kernel.ExpSum(row, row, logZ)
		kernel.Scale(row, -gLogprob*inverse)
		row[token] += gLogprob * inverse
		return
	}
	probs := resizeBuffer(&s.logits, len(row))
	kernel.ExpSum(probs, row, logZ)
	kernel.Mul(row, row, probs)
	kernel.Scale(row, -gEntropy*inverse)
	kernel.Axpy(row, -inverse*(gLogprob+gEntropy*(e.acts.entropy[r]-logZ)), probs)
	row[token] += gLogprob * inverse
}

// gradientAt is xs[i], 0 when xs is nil.
func gradientAt(xs []float32, i int32) float32 {
	if xs == nil {
		return 0
	}
	return xs[i]
}
