package native

import (
	"strings"

	"github.com/weir-rl/weir/gpu"
)

// layout places every tensor in a flat array. Query, key and value matrices lie one after another, as do gate and up, so that
// each group is a single matrix to multiply by; the biases of queries, keys and values lie so too. Tensors that only some
// families have come after the tensors that all have.
type layout struct {
	cfg gpu.Config
	// Sizes, as package native's documentation names them; reps is the query heads to a key head.
	d, ff, hd, v, heads, kvHeads, reps, q, kv, qkv, layers int

	// tensors in the order of gpu.Weights.
	tensors []spec
	size    int
}

// spec is the place of a tensor.
type spec struct {
	name   string
	shape  []int
	off, n int
	kind   kind
}

// kind tells apart tensors that start and decay differently.
type kind uint8

const (
	table kind = iota
	// gain starts as ones, bias as zeros; weight decay leaves both alone.
	gain
	bias
)

// isFamilySpecific reports whether only some families have the tensor.
func (t *spec) isFamilySpecific() bool {
	return t.kind == bias || strings.HasSuffix(t.name, ".q_norm.weight") || strings.HasSuffix(t.name, ".k_norm.weight")
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
		s := spec{name: t.Name, shape: t.Shape, n: t.Elements()}
		switch {
		case strings.HasSuffix(t.Name, ".bias"):
			s.kind = bias
		case len(t.Shape) == 1:
			s.kind = gain
		}
		l.tensors = append(l.tensors, s)
	}
	for _, own := range []bool{false, true} {
		for i := range l.tensors {
			if t := &l.tensors[i]; t.isFamilySpecific() == own {
				t.off = l.size
				l.size += t.n
			}
		}
	}
	return l
}

// view names the parts of a flat array: weights or their gradient.
type view struct {
	// head is embed when tied; value is nil without a value head.
	embed, norm, head, value []float32
	layers                   []layerView
}

// layerView holds a block's matrices, stored [out, in], and its vectors. bias, [qkv], and the gains of the heads, [hd], are nil
// where the model has none.
type layerView struct {
	attnNorm, qkv, o, mlpNorm, gateUp, down []float32
	bias, qNorm, kNorm                      []float32
}

func (l *layout) viewArray(data []float32) view {
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
	for i := range w.layers {
		if l.cfg.QKVBias {
			w.layers[i].bias = take(l.qkv)
		}
		if l.cfg.QKNorm {
			w.layers[i].qNorm, w.layers[i].kNorm = take(l.hd), take(l.hd)
		}
	}
	return w
}
