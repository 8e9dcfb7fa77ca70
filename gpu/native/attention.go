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

// attend is causal attention of one head within a sequence: queries [n, hd] in rows ldq apart, which carry 1/sqrt(hd),
// over keys and values [n, hd] in rows ldkv apart. Query i sees keys [0, i]; out has rows ldo apart. sums, when
// not nil, gets what softmax returns of each row, in pairs sumStride apart.
//
// Keys that a query must not see have weight 0, and adding 0 changes no bit.
func (m *model) attend(
	s *scratch, out []float32, ldo int, q []float32, ldq int, k, v []float32, ldkv, n int, sums []float32, sumStride int,
) {
	for lo := 0; lo < n; lo += queryBlock {
		rows := min(queryBlock, n-lo)
		count := lo + rows
		p := fit(&s.scores, rows*count)
		kernel.MatMulNTStrided(p, count, q[lo*ldq:], ldq, k, ldkv, rows, m.hd, count, false)
		for i := range rows {
			own := i*count + lo + i + 1
			top, inverse := softmax(p[i*count : own])
			clear(p[own : (i+1)*count])
			if sums != nil {
				sums[(lo+i)*sumStride], sums[(lo+i)*sumStride+1] = top, inverse
			}
		}
		kernel.MatMulStrided(out[lo*ldo:], ldo, p, count, v, ldkv, rows, count, m.hd, false)
	}
}

// attendGrad is the gradient of attend. dq has rows ldq apart and is set; dk and
// dv, rows ldkv apart, are added to.
func (m *model) attendGrad(
	s *scratch, dq, dk, dv, dout, out []float32, ldo int, q []float32, ldq int, k, v []float32, ldkv, n int, sums []float32, sumStride int,
) {
	hd := m.hd
	for lo := 0; lo < n; lo += queryBlock {
		rows := min(queryBlock, n-lo)
		count := lo + rows
		p, dp := fit(&s.scores, rows*count), fit(&s.grads, rows*count)
		kernel.MatMulNTStrided(p, count, q[lo*ldq:], ldq, k, ldkv, rows, hd, count, false)
		kernel.MatMulNTStrided(dp, count, dout[lo*ldo:], ldo, v, ldkv, rows, hd, count, false)
		for i := range rows {
			seen := lo + i + 1
			row, grad := p[i*count:i*count+seen], dp[i*count:i*count+seen]
			kernel.ExpSum(row, row, sums[(lo+i)*sumStride])
			kernel.Scale(row, sums[(lo+i)*sumStride+1])
			// The scores' gradient is row (grad - mean), mean being the sum of row grad.
			at := (lo + i) * ldo
			mean := kernel.Dot(dout[at:at+hd], out[at:at+hd])
			kernel.Mul(grad, grad, row)
			kernel.Axpy(grad, -mean, row)
			clear(p[i*count+seen : (i+1)*count])
			clear(dp[i*count+seen : (i+1)*count])
		}
		kernel.MatMulTNStrided(dv, ldkv, p, count, dout[lo*ldo:], ldo, count, rows, hd, true)
		kernel.MatMulStrided(dq[lo*ldq:], ldq, dp, count, k, ldkv, rows, count, hd, false)
		kernel.MatMulTNStrided(dk, ldkv, dp, count, q[lo*ldq:], ldq, count, rows, hd, true)
	}
}

// attendAll attends within every sequence of the batch: out [n, q] from qkv [n, qkv].
func (e *Engine) attendAll(out, qkv, sums []float32) {
	e.eachHead(func(s *scratch, lo, hi, g int) {
		k, v := qkv[lo*e.qkv+e.q+g*e.hd:], qkv[lo*e.qkv+e.q+e.kv+g*e.hd:]
		for h := g * e.reps; h < (g+1)*e.reps; h++ {
			var keep []float32
			if sums != nil {
				keep = sums[2*(lo*e.heads+h):]
			}
			e.attend(s, out[lo*e.q+h*e.hd:], e.q, qkv[lo*e.qkv+h*e.hd:], e.qkv,
				k, v, e.qkv, hi-lo, keep, 2*e.heads)
		}
	})
}

// attendAllGrad is the gradient of attendAll and of the rotation before it: dqkv from dout.
func (e *Engine) attendAllGrad(dqkv, dout, out, qkv, sums []float32) {
	e.eachHead(func(s *scratch, lo, hi, g int) {
		kOff, vOff := e.q+g*e.hd, e.q+e.kv+g*e.hd
		for i := lo; i < hi; i++ {
			clear(dqkv[i*e.qkv+kOff : i*e.qkv+kOff+e.hd])
			clear(dqkv[i*e.qkv+vOff : i*e.qkv+vOff+e.hd])
		}
		base := lo * e.qkv
		for h := g * e.reps; h < (g+1)*e.reps; h++ {
			e.attendGrad(s, dqkv[base+h*e.hd:], dqkv[base+kOff:], dqkv[base+vOff:],
				dout[lo*e.q+h*e.hd:], out[lo*e.q+h*e.hd:], e.q,
				qkv[base+h*e.hd:], e.qkv, qkv[base+kOff:], qkv[base+vOff:], e.qkv, hi-lo, sums[2*(lo*e.heads+h):], 2*e.heads)
		}
		for i := lo; i < hi; i++ {
			row, pos := dqkv[i*e.qkv:(i+1)*e.qkv], i-lo
			e.rotary.turnBack(row[g*e.reps*e.hd:(g+1)*e.reps*e.hd], pos, e.scale)
			e.rotary.turnBack(row[kOff:kOff+e.hd], pos, 1)
		}
	})
}

// eachHead calls f for every sequence [lo, hi) and key head of the batch, in parallel.
func (e *Engine) eachHead(f func(s *scratch, lo, hi, g int)) {
	offsets := e.plan.offsets
	e.blocks((len(offsets)-1)*e.kvHeads, 1, func(s *scratch, at, _ int) {
		seq := at / e.kvHeads
		if lo, hi := offsets[seq], offsets[seq+1]; lo < hi {
			f(s, lo, hi, at%e.kvHeads)
		}
	})
}
