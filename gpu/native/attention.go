package native

import (
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// queryBlock is how many queries are scored at once.
const queryBlock = 64

// softmax replaces a row by its softmax and returns its largest element and the inverse of the sum of exponentials.
func softmax(row []float32) (top, inverse float32) {
	top = kernel.Max(row)
	inverse = 1 / kernel.ExpSum(row, row, top)
	kernel.Scale(row, inverse)
	return top, inverse
}

// head is a head of attention within a sequence of n tokens, or the gradient of a head: queries, which carry 1/sqrt(hd), keys,
// values and output, all [n, hd].
type head struct {
	q, k, v, out kernel.Matrix
	n            int
	// sums, [n, 2], holds what softmax returns for each row. Its data is nil where it is not kept.
	sums kernel.Matrix
}

// attendSequence is causal attention: it sets h.out and, where they are kept, h.sums. Query i sees keys [0, i].
//
// Keys that a query must not see have weight 0, and adding 0 changes no bit.
func (m *model) attendSequence(s *scratch, h *head) {
	for lo := 0; lo < h.n; lo += queryBlock {
		rows := min(queryBlock, h.n-lo)
		count := lo + rows
		p := resizeBuffer(&s.scores, rows*count)
		scores := kernel.Matrix{Data: p, Stride: count}
		q, out := h.q.From(lo), h.out.From(lo)
		kernel.MatMulNTStrided(scores, q, h.k, rows, m.hd, count, false)
		for i := range rows {
			own := i*count + lo + i + 1
			top, inverse := softmax(p[i*count : own])
			clear(p[own : (i+1)*count])
			if h.sums.Data != nil {
				sums := h.sums.Row(lo+i, 2)
				sums[0], sums[1] = top, inverse
			}
		}
		kernel.MatMulStrided(out, scores, h.v, rows, count, m.hd, false)
	}
}

// attendSequenceGrad is the gradient of attendSequence for a head h, given d.out, the gradient of its output: d.q is set, and
// d.k and d.v are added to.
func (m *model) attendSequenceGrad(s *scratch, h, d *head) {
	hd := m.hd
	for lo := 0; lo < h.n; lo += queryBlock {
		rows := min(queryBlock, h.n-lo)
		count := lo + rows
		p, dp := resizeBuffer(&s.scores, rows*count), resizeBuffer(&s.grads, rows*count)
		scores, dscores := kernel.Matrix{Data: p, Stride: count}, kernel.Matrix{Data: dp, Stride: count}
		q, dq, dout := h.q.From(lo), d.q.From(lo), d.out.From(lo)
		kernel.MatMulNTStrided(scores, q, h.k, rows, hd, count, false)
		kernel.MatMulNTStrided(dscores, dout, h.v, rows, hd, count, false)
		for i := range rows {
			seen := lo + i + 1
			row, grad := p[i*count:i*count+seen], dp[i*count:i*count+seen]
			sums := h.sums.Row(lo+i, 2)
			kernel.ExpSum(row, row, sums[0])
			kernel.Scale(row, sums[1])
			// The scores' gradient is row (grad - mean), mean being the sum of row grad.
			mean := kernel.Dot(dout.Row(i, hd), h.out.Row(lo+i, hd))
			kernel.Mul(grad, grad, row)
			kernel.Axpy(grad, -mean, row)
			clear(p[i*count+seen : (i+1)*count])
			clear(dp[i*count+seen : (i+1)*count])
		}
		kernel.MatMulTNStrided(d.v, scores, dout, count, rows, hd, true)
		kernel.MatMulStrided(dq, dscores, h.k, rows, count, hd, false)
		kernel.MatMulTNStrided(d.k, dscores, q, count, rows, hd, true)
	}
}

// attentionHead is head h, of key head g, of the sequence [lo, hi) of the batch, within queries, keys and values qkv [n, qkv] and out
// [n, q]; sums [n, heads, 2] may be nil.
func (e *Engine) attentionHead(lo, hi, g, h int, qkv, out, sums []float32) head {
	rows := func(from int) kernel.Matrix { return kernel.Matrix{Data: qkv[lo*e.qkv+from:], Stride: e.qkv} }
	at := head{
		q: rows(h * e.hd), k: rows(e.q + g*e.hd), v: rows(e.q + e.kv + g*e.hd),
		out: kernel.Matrix{Data: out[lo*e.q+h*e.hd:], Stride: e.q}, n: hi - lo,
	}
	if sums != nil {
		at.sums = kernel.Matrix{Data: sums[2*(lo*e.heads+h):], Stride: 2 * e.heads}
	}
	return at
}

// attendAll attends within every sequence of the batch: out [n, q] from qkv [n, qkv].
func (e *Engine) attendAll(out, qkv, sums []float32) {
	e.forEachHead(func(s *scratch, lo, hi, g int) {
		for h := g * e.reps; h < (g+1)*e.reps; h++ {
			one := e.attentionHead(lo, hi, g, h, qkv, out, sums)
			e.attendSequence(s, &one)
		}
	})
}

// attendAllGrad is the gradient of attendAll and of the rotation before it: dqkv from dout.
func (e *Engine) attendAllGrad(dqkv, dout, out, qkv, sums []float32) {
	e.forEachHead(func(s *scratch, lo, hi, g int) {
		kOff, vOff := e.q+g*e.hd, e.q+e.kv+g*e.hd
		for i := lo; i < hi; i++ {
			clear(dqkv[i*e.qkv+kOff : i*e.qkv+kOff+e.hd])
			clear(dqkv[i*e.qkv+vOff : i*e.qkv+vOff+e.hd])
		}
		for h := g * e.reps; h < (g+1)*e.reps; h++ {
			one, grad := e.attentionHead(lo, hi, g, h, qkv, out, sums), e.attentionHead(lo, hi, g, h, dqkv, dout, nil)
			e.attendSequenceGrad(s, &one, &grad)
		}
		for i := lo; i < hi; i++ {
			row, pos := dqkv[i*e.qkv:(i+1)*e.qkv], i-lo
			e.rotary.rotateRowBack(row[g*e.reps*e.hd:(g+1)*e.reps*e.hd], pos, e.scale)
			e.rotary.rotateRowBack(row[kOff:kOff+e.hd], pos, 1)
		}
	})
}

// forEachHead calls f for every sequence [lo, hi) and key head of the batch, in parallel.
func (e *Engine) forEachHead(f func(s *scratch, lo, hi, g int)) {
	offsets := e.plan.offsets
	e.forEachBlock((len(offsets)-1)*e.kvHeads, 1, func(s *scratch, at, _ int) {
		seq := at / e.kvHeads
		if lo, hi := offsets[seq], offsets[seq+1]; lo < hi {
			f(s, lo, hi, at%e.kvHeads)
		}
	})
}
