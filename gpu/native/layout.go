package native

import "github.com/weir-rl/weir/gpu"

// layout places every tensor in one flat array, in the order of gpu.Weights. Query, key and value matrices
// lie one after another, as do gate and up, so that each group is one matrix to multiply by.
type layout struct {
	cfg gpu.Config
	// Sizes, as package native's documentation names them; reps is the query heads to a key head.
	d, ff, hd, v, heads, kvHeads, reps, q, kv, qkv, layers int

	tensors []spec
	size    int
}

// spec is one tensor's place.
type spec struct {
	name   string
	shape  []int
	off, n int
	// norm is true of gains, which weight decay leaves alone.
	norm bool
}

func newLayout(cfg gpu.Config) layout {
	hd := cfg.AttentionDim()
	l := layout{
		cfg: cfg, d: cfg.HiddenSize, ff: cfg.IntermediateSize, hd: hd, v: cfg.VocabSize,
		heads: cfg.NumHeads, kvHeads: cfg.NumKVHeads, reps: cfg.NumHeads / cfg.NumKVHeads,
		q: cfg.NumHeads * hd, kv: cfg.NumKVHeads * hd, layers: cfg.NumLayers,
	}
	l.qkv = l.q + 2*l.kv
	for _, t := range cfg.Layout() {
		n := 1
		for _, s := range t.Shape {
			n *= s
		}
		l.tensors = append(l.tensors, spec{name: t.Name, shape: t.Shape, off: l.size, n: n, norm: len(t.Shape) == 1})
		l.size += n
	}
	return l
}

// view names the parts of a flat array: weights or their gradient.
type view struct {
	// head is embed when tied; value is nil without a value head.
	embed, norm, head, value []float32
	layers                   []layerView
}

// layerView is one block's matrices, stored [out, in].
type layerView struct {
	attnNorm, qkv, o, mlpNorm, gateUp, down []float32
}

func (l *layout) view(data []float32) view {
	at := 0
	take := func(n int) []float32 {
		at += n
		return data[at-n : at : at]
	}
	w := view{embed: take(l.v * l.d), layers: make([]layerView, l.layers)}
	for i := range w.layers {
		w.layers[i] = layerView{
			attnNorm: take(l.d), qkv: take(l.qkv * l.d), o: take(l.d * l.q),
			mlpNorm: take(l.d), gateUp: take(2 * l.ff * l.d), down: take(l.d * l.ff),
		}
	}
	w.norm = take(l.d)
	w.head = w.embed
	if !l.cfg.TieEmbeddings {
		w.head = take(l.v * l.d)
	}
	if l.cfg.ValueHead {
		w.value = take(l.d)
	}
	return w
}
