package hf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu"
)

// shaped is a tensor that a model has.
type shaped struct {
	name  string
	shape []int
}

// layout lists the tensors of a model in the order of gpu.Weights.
func layout(c gpu.Config) []shaped {
	d, ff, q, kv := c.HiddenSize, c.IntermediateSize, c.NumHeads*c.AttentionDim(), c.NumKVHeads*c.AttentionDim()
	out := []shaped{{"model.embed_tokens.weight", []int{c.VocabSize, d}}}
	for i := range c.NumLayers {
		p := fmt.Sprintf("model.layers.%d.", i)
		out = append(out,
			shaped{p + "input_layernorm.weight", []int{d}},
			shaped{p + "self_attn.q_proj.weight", []int{q, d}},
			shaped{p + "self_attn.k_proj.weight", []int{kv, d}},
			shaped{p + "self_attn.v_proj.weight", []int{kv, d}},
			shaped{p + "self_attn.o_proj.weight", []int{d, q}},
			shaped{p + "post_attention_layernorm.weight", []int{d}},
			shaped{p + "mlp.gate_proj.weight", []int{ff, d}},
			shaped{p + "mlp.up_proj.weight", []int{ff, d}},
			shaped{p + "mlp.down_proj.weight", []int{d, ff}},
		)
	}
	out = append(out, shaped{"model.norm.weight", []int{d}})
	if !c.TieEmbeddings {
		out = append(out, shaped{"lm_head.weight", []int{c.VocabSize, d}})
	}
	if c.ValueHead {
		out = append(out, shaped{"value_head.weight", []int{1, d}})
	}
	return out
}

// arrange puts the tensors in the order of the model's and reports every one that is missing, of another
// shape, or not the model's, wrapping gpu.ErrMismatch. Tensors that follow from the others, as Transformers
// has stored them at times, are left out: the angles' frequencies, and the head when it is tied.
func arrange(c gpu.Config, tensors []gpu.Tensor) (*gpu.Weights, error) {
	byName := make(map[string]gpu.Tensor, len(tensors))
	for _, t := range tensors {
		byName[t.Name] = t
	}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", gpu.ErrMismatch, fmt.Sprintf(format, args...)))
	}
	if len(byName) < len(tensors) {
		bad("a tensor's name is used twice")
	}
	want := layout(c)
	w := &gpu.Weights{Tensors: make([]gpu.Tensor, 0, len(want))}
	for _, s := range want {
		t, ok := byName[s.name]
		delete(byName, s.name)
		switch {
		case !ok:
			bad("tensor %q is missing", s.name)
		case !slices.Equal(t.Shape, s.shape):
			bad("tensor %q has shape %v, the configuration says %v", s.name, t.Shape, s.shape)
		default:
			w.Tensors = append(w.Tensors, t)
		}
	}
	for _, t := range tensors {
		_, left := byName[t.Name]
		derived := strings.HasSuffix(t.Name, ".rotary_emb.inv_freq") || t.Name == "lm_head.weight" && c.TieEmbeddings
		if left && !derived {
			bad("tensor %q is not the model's", t.Name)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return w, nil
}
