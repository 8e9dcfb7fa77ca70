package gpu

import (
	"fmt"
	"slices"
)

// Weights are named tensors in Hugging Face's names and order of axes, row-major float32:
//
//	model.embed_tokens.weight                        [vocab, hidden]
//	model.layers.N.input_layernorm.weight            [hidden]
//	model.layers.N.self_attn.{q,k,v}_proj.weight     [heads or kv heads * head_dim, hidden]
//	model.layers.N.self_attn.{q,k,v}_proj.bias       [heads or kv heads * head_dim], after its weight, with QKVBias
//	model.layers.N.self_attn.o_proj.weight           [hidden, heads * head_dim]
//	model.layers.N.self_attn.{q,k}_norm.weight       [head_dim], with QKNorm
//	model.layers.N.post_attention_layernorm.weight   [hidden]
//	model.layers.N.mlp.{gate,up}_proj.weight         [intermediate, hidden]
//	model.layers.N.mlp.down_proj.weight              [hidden, intermediate]
//	model.norm.weight                                [hidden]
//	lm_head.weight                                   [vocab, hidden], absent when tied
//	value_head.weight                                [1, hidden], when the model has one
type Weights struct {
	// Tensors in the order above.
	Tensors []Tensor
	// Source has the numbers of the tensors without Data; nil where all have theirs. It serves until the call that was given
	// the weights returns.
	Source Source
}

// Tensor is a named array.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
}

// Elements is how many numbers the tensor's shape has.
func (t Tensor) Elements() int {
	n := 1
	for _, s := range t.Shape {
		n *= s
	}
	return n
}

// Names of the tensors that code treats apart from the others.
const (
	HeadTensor      = "lm_head.weight"
	ValueHeadTensor = "value_head.weight"
)

// Layout lists the tensors that a model has, without data, in the order of [Weights].
func (c Config) Layout() []Tensor {
	if c.Transformers != nil {
		return c.Transformers.layout(c)
	}
	d, ff, q, kv := c.HiddenSize, c.IntermediateSize, c.NumHeads*c.AttentionDim(), c.NumKVHeads*c.AttentionDim()
	out := []Tensor{{Name: "model.embed_tokens.weight", Shape: []int{c.VocabSize, d}}}
	for i := range c.NumLayers {
		add := func(name string, shape ...int) {
			out = append(out, Tensor{Name: fmt.Sprintf("model.layers.%d.%s", i, name), Shape: shape})
		}
		project := func(name string, rows int) {
			add("self_attn."+name+"_proj.weight", rows, d)
			if c.QKVBias {
				add("self_attn."+name+"_proj.bias", rows)
			}
		}
		add("input_layernorm.weight", d)
		project("q", q)
		project("k", kv)
		project("v", kv)
		add("self_attn.o_proj.weight", d, q)
		if c.QKNorm {
			add("self_attn.q_norm.weight", c.AttentionDim())
			add("self_attn.k_norm.weight", c.AttentionDim())
		}
		add("post_attention_layernorm.weight", d)
		add("mlp.gate_proj.weight", ff, d)
		add("mlp.up_proj.weight", ff, d)
		add("mlp.down_proj.weight", d, ff)
	}
	out = append(out, Tensor{Name: "model.norm.weight", Shape: []int{d}})
	if !c.TieEmbeddings {
		out = append(out, Tensor{Name: HeadTensor, Shape: []int{c.VocabSize, d}})
	}
	if c.ValueHead {
		out = append(out, Tensor{Name: ValueHeadTensor, Shape: []int{1, d}})
	}
	return out
}

// WithValueHead adds a value head of zeros to a model that has none, or, where on is false, removes the value head. The other
// tensors are shared with w.
func WithValueHead(c Config, w *Weights, on bool) (Config, *Weights) {
	at := slices.IndexFunc(w.Tensors, func(t Tensor) bool { return t.Name == ValueHeadTensor })
	c.ValueHead = on
	switch {
	case on && at < 0:
		head := Tensor{Name: ValueHeadTensor, Shape: []int{1, c.HiddenSize}, Data: make([]float32, c.HiddenSize)}
		w = &Weights{Tensors: append(slices.Clip(w.Tensors), head), Source: w.Source}
	case !on && at >= 0:
		w = &Weights{Tensors: slices.Delete(slices.Clone(w.Tensors), at, at+1), Source: w.Source}
	}
	return c, w
}
