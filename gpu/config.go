package gpu

import (
	"errors"
	"fmt"
)

// Config describes a decoder-only transformer of the shape that Llama, Qwen2 and Qwen3 share: RMSNorm before each block, rotary
// positions, grouped-query attention and SwiGLU. The differences between the families are settings of their own, so that no
// engine asks for a family's name. The JSON is Hugging Face's config.json where it has a key for the setting.
type Config struct {
	Architectures []string `json:"architectures,omitempty"`
	ModelType     string   `json:"model_type"`
	VocabSize     int      `json:"vocab_size"`
	// HiddenSize is the width of the residual stream; IntermediateSize that of the SwiGLU block.
	HiddenSize       int `json:"hidden_size"`
	IntermediateSize int `json:"intermediate_size"`
	NumLayers        int `json:"num_hidden_layers"`
	NumHeads         int `json:"num_attention_heads"`
	// NumKVHeads divides NumHeads: grouped-query attention.
	NumKVHeads int `json:"num_key_value_heads"`
	// HeadDim is even; 0 is HiddenSize / NumHeads.
	HeadDim   int     `json:"head_dim,omitempty"`
	RopeTheta float64 `json:"rope_theta"`
	// RopeScaling slows the rotary angles for contexts longer than the model was first trained on; nil leaves them.
	RopeScaling *RopeScaling `json:"rope_scaling,omitempty"`
	// QKVBias adds a bias to the q, k and v projections (Qwen2).
	QKVBias bool `json:"qkv_bias,omitempty"`
	// QKNorm applies RMSNorm, with weights of its own, to each head of q and k before the rotation (Qwen3).
	QKNorm     bool    `json:"qk_norm,omitempty"`
	RMSNormEps float64 `json:"rms_norm_eps"`
	// TieEmbeddings uses the embedding matrix as the head.
	TieEmbeddings bool `json:"tie_word_embeddings"`
	// MaxPositions bounds the length of a sequence.
	MaxPositions int    `json:"max_position_embeddings"`
	DType        string `json:"torch_dtype,omitempty"`
	BOSToken     int32  `json:"bos_token_id"`
	EOSToken     int32  `json:"eos_token_id"`
	// StopTokens end a generation as EOSToken does; EOSToken need not be among them.
	StopTokens []int32 `json:"stop_token_ids,omitempty"`
	// ValueHead adds a linear critic on the last hidden state ("value_head.weight" [1, hidden]).
	ValueHead bool `json:"value_head,omitempty"`
	// InitStd is the standard deviation of the starting weights; HF calls it initializer_range.
	InitStd float64 `json:"initializer_range,omitempty"`
	// Transformers is the model where only Transformers builds it; the fields above then describe it as far as config.json does. nil is a
	// model that the fields above describe.
	Transformers *TransformersModel `json:"transformers,omitempty"`
}

// Validate reports every fault.
func (c Config) Validate() error {
	if c.Transformers != nil {
		return c.validateModule()
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("model config: "+format, args...)) }
	for _, f := range []struct {
		name string
		v    int
	}{
		{"vocab_size", c.VocabSize},
		{"hidden_size", c.HiddenSize},
		{"intermediate_size", c.IntermediateSize},
		{"num_hidden_layers", c.NumLayers},
		{"num_attention_heads", c.NumHeads},
		{"num_key_value_heads", c.NumKVHeads},
		{"max_position_embeddings", c.MaxPositions},
	} {
		if f.v <= 0 {
			bad("%s is %d: must be positive", f.name, f.v)
		}
	}
	if c.NumKVHeads > 0 && c.NumHeads%c.NumKVHeads != 0 {
		bad("num_attention_heads %d is not a multiple of num_key_value_heads %d", c.NumHeads, c.NumKVHeads)
	}
	if d := c.headDim(); d <= 0 || d%2 != 0 {
		bad("head_dim is %d: must be positive and even", d)
	}
	if c.RopeTheta <= 0 {
		bad("rope_theta is %g: must be positive", c.RopeTheta)
	}
	if c.RopeScaling != nil {
		if err := c.RopeScaling.validateScaling(); err != nil {
			errs = append(errs, fmt.Errorf("model config: %w", err))
		}
	}
	if c.RMSNormEps <= 0 {
		bad("rms_norm_eps is %g: must be positive", c.RMSNormEps)
	}
	return errors.Join(errs...)
}

func (c Config) headDim() int {
	if c.HeadDim > 0 || c.NumHeads == 0 {
		return c.HeadDim
	}
	return c.HiddenSize / c.NumHeads
}

// AttentionDim is the width of an attention head: HeadDim, or HiddenSize / NumHeads when that is 0.
func (c Config) AttentionDim() int { return c.headDim() }
