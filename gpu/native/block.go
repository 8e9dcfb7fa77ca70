package native

import "github.com/weir-rl/weir/gpu/native/kernel"

// projected is what projectQKV leaves for the backward pass: the inverse norms of its input, [rows]. Of a model that normalizes
// its heads it also has the queries and keys before that, [rows, q+kv], and their inverse norms, [rows, heads+kvHeads]. Each is
// nil where it is not kept.
type projected struct {
	inv, raw, heads []float32
}

// sliceRows is the part of k for rows [lo, hi).
func (k projected) sliceRows(m *model, lo, hi int) projected {
	part := func(x []float32, width int) []float32 {
		if x == nil {
			return nil
		}
		return x[lo*width : hi*width]
	}
	return projected{inv: part(k.inv, 1), raw: part(k.raw, m.q+m.kv), heads: part(k.heads, m.heads+m.kvHeads)}
}

// projectQKV computes rows of a block's queries, keys and values, [rows, qkv], from its input x [rows, d]. The queries
// and keys are rotated to their positions; the queries carry 1/sqrt(hd). pool may be nil.
func (m *model) projectQKV(pool *kernel.Pool, s *scratch, w *forwardLayer, r *rotary, qkv, x []float32, keep projected, pos []int32) {
	rows := len(pos)
	h := resizeBuffer(&s.norm, rows*m.d)
	m.normalizeRows(h, x, w.attnNorm, keep.inv)
	pool.MatMulPacked(qkv, h, w.qkv, rows, false)
	if a := w.lora; a != nil {
		a.addProduct(s, a.q, kernel.Matrix{Data: qkv, Stride: m.qkv}, h, rows)
		a.addProduct(s, a.k, kernel.Matrix{Data: qkv[m.q:], Stride: m.qkv}, h, rows)
		a.addProduct(s, a.v, kernel.Matrix{Data: qkv[m.q+m.kv:], Stride: m.qkv}, h, rows)
	}
	for i, p := range pos {
		row := qkv[i*m.qkv : (i+1)*m.qkv]
		if len(w.bias) > 0 {
			kernel.Add(row, row, w.bias)
		}
		if w.qNorm != nil {
			m.normalizeHeads(row, w, keep.sliceRows(m, i, i+1))
		}
		r.rotateRow(row[:m.q], int(p), m.scale)
		r.rotateRow(row[m.q:m.q+m.kv], int(p), 1)
	}
}

// normalizeHeads is RMSNorm of each query and key head of a row, in place.
func (m *model) normalizeHeads(row []float32, w *forwardLayer, keep projected) {
	var q, k []float32
	if keep.raw != nil {
		copy(keep.raw, row)
		q, k = keep.heads[:m.heads], keep.heads[m.heads:]
	}
	m.normalizeRows(row[:m.q], row[:m.q], w.qNorm, q)
	m.normalizeRows(row[m.q:m.q+m.kv], row[m.q:m.q+m.kv], w.kNorm, k)
}

// feedRows are n rows of a block after its attention.
type feedRows struct {
	n int
	// x is the block's input [n, d], att the attention's output [n, q].
	x, att []float32
	// mid [n, d], which may be x, is x + att Wo^T, midInv its inverse norms [n]; nil where the backward pass does not need them.
	mid, midInv []float32
	// gateUp [n, 2ff] and act [n, ff] are the gate and up products, and silu(gate) * up.
	gateUp, act []float32
	// out [n, d], which may be x, is the block's output: mid + act Wd^T. It is nil where only the other arrays are computed.
	out []float32
}

// feedForward computes mid, gateUp, act and out of a block's rows: out = mid + (silu(gate) * up) Wd^T, with gate and up from
// normalized mid. pool may be nil.
func (m *model) feedForward(pool *kernel.Pool, s *scratch, w *forwardLayer, r *feedRows) {
	if &r.mid[0] != &r.x[0] {
		copy(r.mid, r.x)
	}
	pool.MatMulPacked(r.mid, r.att, w.o, r.n, true)
	if a := w.lora; a != nil {
		a.addProduct(s, a.o, kernel.Matrix{Data: r.mid, Stride: m.d}, r.att, r.n)
	}
	h := resizeBuffer(&s.norm, r.n*m.d)
	m.normalizeRows(h, r.mid, w.mlpNorm, r.midInv)
	pool.MatMulPacked(r.gateUp, h, w.gateUp, r.n, false)
	if a := w.lora; a != nil {
		a.addProduct(s, a.gate, kernel.Matrix{Data: r.gateUp, Stride: 2 * m.ff}, h, r.n)
		a.addProduct(s, a.up, kernel.Matrix{Data: r.gateUp[m.ff:], Stride: 2 * m.ff}, h, r.n)
	}
	for i := range r.n {
		gu := r.gateUp[i*2*m.ff : (i+1)*2*m.ff]
		kernel.SwiGLU(r.act[i*m.ff:(i+1)*m.ff], gu[:m.ff], gu[m.ff:])
	}
	if r.out == nil {
		return
	}
	if &r.out[0] != &r.mid[0] {
		copy(r.out, r.mid)
	}
	pool.MatMulPacked(r.out, r.act, w.down, r.n, true)
	if a := w.lora; a != nil {
		a.addProduct(s, a.down, kernel.Matrix{Data: r.out, Stride: m.d}, r.act, r.n)
	}
}
