package native

import "github.com/weir-rl/weir/gpu/native/kernel"

// projected is what project leaves for the backward pass: the inverse norms of its input, [rows], and of a model that
// normalizes its heads their queries and keys before that, [rows, q+kv], with their inverse norms, [rows, heads+kvHeads]. Each
// is nil where it is not kept.
type projected struct {
	inv, raw, heads []float32
}

// rows are [lo, hi) of what is kept.
func (k projected) rows(m *model, lo, hi int) projected {
	part := func(x []float32, width int) []float32 {
		if x == nil {
			return nil
		}
		return x[lo*width : hi*width]
	}
	return projected{inv: part(k.inv, 1), raw: part(k.raw, m.q+m.kv), heads: part(k.heads, m.heads+m.kvHeads)}
}

// project computes rows of a block's queries, keys and values, [rows, qkv], from its input x [rows, d]. The queries
// and keys are rotated to their positions; the queries carry 1/sqrt(hd). pool may be nil.
func (m *model) project(pool *kernel.Pool, s *scratch, w *forwardLayer, r *rotary, qkv, x []float32, keep projected, pos []int32) {
	rows := len(pos)
	h := fit(&s.norm, rows*m.d)
	m.normalize(h, x, w.attnNorm, keep.inv)
	pool.MatMulPacked(qkv, h, w.qkv, rows, false)
	if a := w.low; a != nil {
		a.add(s, a.q, qkv, m.qkv, h, rows)
		a.add(s, a.k, qkv[m.q:], m.qkv, h, rows)
		a.add(s, a.v, qkv[m.q+m.kv:], m.qkv, h, rows)
	}
	for i, p := range pos {
		row := qkv[i*m.qkv : (i+1)*m.qkv]
		if len(w.bias) > 0 {
			kernel.Add(row, row, w.bias)
		}
		if w.qNorm != nil {
			m.normalizeHeads(row, w, keep.rows(m, i, i+1))
		}
		r.turn(row[:m.q], int(p), m.scale)
		r.turn(row[m.q:m.q+m.kv], int(p), 1)
	}
}

// normalizeHeads is RMSNorm of each query and key head of one row, in place.
func (m *model) normalizeHeads(row []float32, w *forwardLayer, keep projected) {
	var q, k []float32
	if keep.raw != nil {
		copy(keep.raw, row)
		q, k = keep.heads[:m.heads], keep.heads[m.heads:]
	}
	m.normalize(row[:m.q], row[:m.q], w.qNorm, q)
	m.normalize(row[m.q:m.q+m.kv], row[m.q:m.q+m.kv], w.kNorm, k)
}

// feed computes rows of the rest of a block from its input x [rows, d] and the attention's output att [rows, q]:
// mid = x + att Wo^T, out = mid + (silu(gate) * up) Wd^T with gate, up from normalized mid. gateUp [rows, 2ff],
// act [rows, ff] and inv are kept for the backward pass by a caller that needs them. mid and out may be x; without out
// all but out is computed.
func (m *model) feed(pool *kernel.Pool, s *scratch, w *forwardLayer, out, mid, x, att, inv, gateUp, act []float32, rows int) {
	if &mid[0] != &x[0] {
		copy(mid, x)
	}
	pool.MatMulPacked(mid, att, w.o, rows, true)
	if a := w.low; a != nil {
		a.add(s, a.o, mid, m.d, att, rows)
	}
	h := fit(&s.norm, rows*m.d)
	m.normalize(h, mid, w.mlpNorm, inv)
	pool.MatMulPacked(gateUp, h, w.gateUp, rows, false)
	if a := w.low; a != nil {
		a.add(s, a.gate, gateUp, 2*m.ff, h, rows)
		a.add(s, a.up, gateUp[m.ff:], 2*m.ff, h, rows)
	}
	for i := range rows {
		gu := gateUp[i*2*m.ff : (i+1)*2*m.ff]
		kernel.SwiGLU(act[i*m.ff:(i+1)*m.ff], gu[:m.ff], gu[m.ff:])
	}
	if out == nil {
		return
	}
	if &out[0] != &mid[0] {
		copy(out, mid)
	}
	pool.MatMulPacked(out, act, w.down, rows, true)
	if a := w.low; a != nil {
		a.add(s, a.down, out, m.d, act, rows)
	}
}
