package gpu

// Weights are named tensors in Hugging Face's names and order of axes, row-major float32:
//
//	model.embed_tokens.weight                        [vocab, hidden]
//	model.layers.N.input_layernorm.weight            [hidden]
//	model.layers.N.self_attn.{q,k,v}_proj.weight     [heads or kv heads * head_dim, hidden]
//	model.layers.N.self_attn.o_proj.weight           [hidden, heads * head_dim]
//	model.layers.N.post_attention_layernorm.weight   [hidden]
//	model.layers.N.mlp.{gate,up}_proj.weight         [intermediate, hidden]
//	model.layers.N.mlp.down_proj.weight              [hidden, intermediate]
//	model.norm.weight                                [hidden]
//	lm_head.weight                                   [vocab, hidden], absent when tied
//	value_head.weight                                [1, hidden], when the model has one
type Weights struct {
	// Tensors in the order above.
	Tensors []Tensor
}

// Tensor is one named array.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
}

// OptimizerState is AdamW's: first and second moments and the number of steps taken.
type OptimizerState struct {
	Steps   int64
	Moments []Tensor
}
