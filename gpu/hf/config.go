package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

const (
	architecture = "LlamaForCausalLM"
	modelType    = "llama"
)

// NoToken stands in gpu.Config for a BOS or EOS token that config.json does not name.
const NoToken int32 = -1

// configFile is config.json: gpu.Config and what of Llama's that leaves fixed.
type configFile struct {
	gpu.Config
	BOSToken       *int32  `json:"bos_token_id"`
	EOSToken       *int32  `json:"eos_token_id"`
	HiddenAct      string  `json:"hidden_act"`
	AttentionBias  bool    `json:"attention_bias"`
	AttentionDrop  int     `json:"attention_dropout"`
	MLPBias        bool    `json:"mlp_bias"`
	PretrainingTP  int     `json:"pretraining_tp"`
	UseCache       bool    `json:"use_cache"`
	RopeScaling    any     `json:"rope_scaling"`
	InitializerStd float64 `json:"initializer_range,omitempty"`
}

// encodeConfig is config.json's bytes.
func encodeConfig(c gpu.Config, dtype safetensors.DType) ([]byte, error) {
	c.Architectures, c.ModelType = []string{architecture}, modelType
	c.HeadDim = c.AttentionDim()
	c.DType = map[safetensors.DType]string{safetensors.F32: "float32", safetensors.BF16: "bfloat16"}[dtype]
	f := configFile{
		Config: c, BOSToken: optional(c.BOSToken), EOSToken: optional(c.EOSToken),
		HiddenAct: "silu", PretrainingTP: 1, UseCache: true, InitializerStd: c.InitStd,
	}
	return indented(f)
}

// generationFile is generation_config.json.
type generationFile struct {
	FromModelConfig bool   `json:"_from_model_config"`
	BOSToken        *int32 `json:"bos_token_id,omitempty"`
	EOSToken        *int32 `json:"eos_token_id,omitempty"`
}

func encodeGeneration(c gpu.Config) ([]byte, error) {
	return indented(generationFile{FromModelConfig: true, BOSToken: optional(c.BOSToken), EOSToken: optional(c.EOSToken)})
}

func optional(token int32) *int32 {
	if token < 0 {
		return nil
	}
	return &token
}

func indented(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return append(b, '\n'), err
}

// foreignConfig is config.json in the forms that Transformers has written.
type foreignConfig struct {
	gpu.Config
	// These shadow gpu.Config's: they may be null or lists.
	BOSToken json.RawMessage `json:"bos_token_id"`
	EOSToken json.RawMessage `json:"eos_token_id"`

	HiddenAct     string          `json:"hidden_act"`
	AttentionBias bool            `json:"attention_bias"`
	MLPBias       bool            `json:"mlp_bias"`
	RopeScaling   json.RawMessage `json:"rope_scaling"`
	// Transformers 5 writes the angles' settings in one object and the type as dtype.
	Rope *struct {
		Theta float64 `json:"rope_theta"`
		Type  string  `json:"rope_type"`
	} `json:"rope_parameters"`
	NewDType string `json:"dtype"`
}

// decodeConfig reads config.json; what it leaves out has Transformers' defaults for Llama. A model that differs
// from gpu.Config's in a way that the engines do not compute is refused.
func decodeConfig(b []byte) (gpu.Config, error) {
	more := foreignConfig{Config: gpu.Config{RopeTheta: 10000, RMSNormEps: 1e-6, MaxPositions: 2048, InitStd: 0.02}}
	if err := json.Unmarshal(b, &more); err != nil {
		return gpu.Config{}, fmt.Errorf("parse config.json: %w", err)
	}
	c := more.Config
	if c.NumKVHeads == 0 {
		c.NumKVHeads = c.NumHeads
	}
	if more.NewDType != "" {
		c.DType = more.NewDType
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("config.json: "+format, args...)) }
	if c.ModelType != modelType {
		bad("model_type is %q: only %q is read", c.ModelType, modelType)
	}
	if more.HiddenAct != "" && more.HiddenAct != "silu" {
		bad("hidden_act is %q: only silu is read", more.HiddenAct)
	}
	if more.AttentionBias || more.MLPBias {
		bad("attention_bias or mlp_bias is set: biases are not read")
	}
	if more.Rope != nil {
		if more.Rope.Theta > 0 {
			c.RopeTheta = more.Rope.Theta
		}
		if more.Rope.Type != "" && more.Rope.Type != "default" {
			bad("rope_type is %q: only default is read", more.Rope.Type)
		}
	}
	if s := bytes.TrimSpace(more.RopeScaling); len(s) > 0 && !bytes.Equal(s, []byte("null")) {
		bad("rope_scaling is %s: scaled angles are not read", s)
	}
	var err error
	if c.BOSToken, err = tokenID(more.BOSToken); err != nil {
		bad("bos_token_id: %w", err)
	}
	if c.EOSToken, err = tokenID(more.EOSToken); err != nil {
		bad("eos_token_id: %w", err)
	}
	if err := c.Validate(); err != nil {
		errs = append(errs, err)
	}
	return c, errors.Join(errs...)
}

// tokenID reads a number, null, or a list, of which it takes the first.
func tokenID(b json.RawMessage) (int32, error) {
	if len(b) == 0 || string(b) == "null" {
		return NoToken, nil
	}
	var list []int32
	if json.Unmarshal(b, &list) == nil {
		if len(list) == 0 {
			return NoToken, nil
		}
		return list[0], nil
	}
	var id int32
	if err := json.Unmarshal(b, &id); err != nil {
		return NoToken, fmt.Errorf("%s is not a token id", b)
	}
	return id, nil
}

// tokenizerConfig is tokenizer_config.json: it tells Transformers to take tokenizer.json as it is.
func tokenizerConfig(c gpu.Config, tokenizerJSON []byte) ([]byte, error) {
	var t struct {
		Added []struct {
			ID      int32  `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
	}
	if err := json.Unmarshal(tokenizerJSON, &t); err != nil {
		return nil, fmt.Errorf("parse tokenizer.json: %w", err)
	}
	out := struct {
		Class     string `json:"tokenizer_class"`
		BOS       string `json:"bos_token,omitempty"`
		EOS       string `json:"eos_token,omitempty"`
		MaxLength int    `json:"model_max_length"`
		CleanUp   bool   `json:"clean_up_tokenization_spaces"`
	}{Class: "PreTrainedTokenizerFast", MaxLength: c.MaxPositions}
	for _, a := range t.Added {
		if a.ID == c.BOSToken {
			out.BOS = a.Content
		}
		if a.ID == c.EOSToken {
			out.EOS = a.Content
		}
	}
	return indented(out)
}
