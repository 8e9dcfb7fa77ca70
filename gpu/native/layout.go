package native

import (
	"fmt"

	"github.com/weir-rl/weir/gpu"
)

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
	add := func(name string, shape ...int) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		l.tensors = append(l.tensors, spec{name: name, shape: shape, off: l.size, n: n, norm: len(shape) == 1})
		l.size += n
	}
	add("model.embed_tokens.weight", l.v, l.d)
	for i := range l.layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		add(p+"input_layernorm.weight", l.d)
		add(p+"self_attn.q_proj.weight", l.q, l.d)
		add(p+"self_attn.k_proj.weight", l.kv, l.d)
		add(p+"self_attn.v_proj.weight", l.kv, l.d)
		add(p+"self_attn.o_proj.weight", l.d, l.q)
		add(p+"post_attention_layernorm.weight", l.d)
		add(p+"mlp.gate_proj.weight", l.ff, l.d)
		add(p+"mlp.up_proj.weight", l.ff, l.d)
		add(p+"mlp.down_proj.weight", l.d, l.ff)
	}
	add("model.norm.weight", l.d)
	if !cfg.TieEmbeddings {
		add("lm_head.weight", l.v, l.d)
	}
	if cfg.ValueHead {
		add(valueHead, 1, l.d)
	}
	return l
}

const valueHead = "value_head.weight"

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
