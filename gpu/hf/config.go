package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// NoToken stands in gpu.Config for a BOS or EOS token that config.json does not name.
const NoToken int32 = -1

// ReadConfig reads the config.json of a folder, in any dialect that [Open] reads.
func ReadConfig(dir string) (gpu.Config, error) {
	b, err := os.ReadFile(filepath.Join(dir, configName))
	if err != nil {
		return gpu.Config{}, err
	}
	c, err := readModel(b)
	if err == nil {
		c, err = readTensors(dir, c)
	}
	if err != nil {
		return gpu.Config{}, fmt.Errorf("%s: %w", dir, err)
	}
	return c, nil
}

// WriteConfig writes config.json and generation_config.json for a model whose numbers are stored as dtype; "" is Float32.
func WriteConfig(dir string, c gpu.Config, dtype gpu.DType) ([]gpu.File, error) {
	files, err := writeConfig(dir, c, gpu.ExportOptions{DType: dtype})
	if err != nil {
		return nil, fmt.Errorf("write the configuration into %s: %w", dir, err)
	}
	return files, nil
}

// configFile is config.json: gpu.Config and the keys of the families that gpu.Config leaves fixed. Fields of the same names
// stand before gpu.Config's.
type configFile struct {
	gpu.Config
	BOSToken       *int32       `json:"bos_token_id"`
	EOSToken       any          `json:"eos_token_id"`
	QKVBias        *bool        `json:"qkv_bias,omitempty"`
	QKNorm         *bool        `json:"qk_norm,omitempty"`
	StopTokens     *int32       `json:"stop_token_ids,omitempty"`
	HiddenAct      string       `json:"hidden_act"`
	AttentionBias  bool         `json:"attention_bias"`
	AttentionDrop  int          `json:"attention_dropout"`
	MLPBias        bool         `json:"mlp_bias"`
	PretrainingTP  int          `json:"pretraining_tp"`
	UseCache       bool         `json:"use_cache"`
	RopeScaling    *scalingFile `json:"rope_scaling"`
	InitializerStd float64      `json:"initializer_range,omitempty"`
}

// scalingFile is rope_scaling.
type scalingFile struct {
	Type string `json:"rope_type"`
	gpu.RopeScaling
}

// encodeConfig is config.json's bytes.
func encodeConfig(c gpu.Config, dtype safetensors.DType) ([]byte, error) {
	stored := map[safetensors.DType]string{safetensors.F32: "float32", safetensors.BF16: "bfloat16"}[dtype]
	if c.Transformers != nil {
		return encodeModule(c.Transformers, stored)
	}
	family, ok := familyOf(c)
	if !ok {
		return nil, errors.New("encode config.json: no family of Hugging Face's has both qkv_bias and qk_norm")
	}
	c.Architectures, c.ModelType = []string{family.architecture}, family.modelType
	c.HeadDim = c.AttentionDim()
	c.DType = stored
	f := configFile{
		Config: c, BOSToken: optionalField(c.BOSToken), EOSToken: endTokens(c),
		HiddenAct: "silu", PretrainingTP: 1, UseCache: true, InitializerStd: c.InitStd,
	}
	if c.RopeScaling != nil {
		f.RopeScaling = &scalingFile{"llama3", *c.RopeScaling}
	}
	return indentedJSON(f)
}

// endTokens is eos_token_id: a number, a list where there are more, or null.
func endTokens(c gpu.Config) any {
	if len(c.StopTokens) == 0 {
		return optionalField(c.EOSToken)
	}
	var list []int32
	for _, id := range append([]int32{c.EOSToken}, c.StopTokens...) {
		if id >= 0 && !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	return list
}

// generationFile is generation_config.json.
type generationFile struct {
	FromModelConfig bool   `json:"_from_model_config"`
	BOSToken        *int32 `json:"bos_token_id,omitempty"`
	EOSToken        any    `json:"eos_token_id,omitempty"`
}

func encodeGeneration(c gpu.Config) ([]byte, error) {
	f := generationFile{FromModelConfig: true, BOSToken: optionalField(c.BOSToken)}
	if c.EOSToken >= 0 || len(c.StopTokens) > 0 {
		f.EOSToken = endTokens(c)
	}
	return indentedJSON(f)
}

func optionalField(token int32) *int32 {
	if token < 0 {
		return nil
	}
	return &token
}

func indentedJSON(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return append(b, '\n'), err
}

// tokenizerConfig is tokenizer_config.json: with it Transformers takes tokenizer.json as it is.
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
	return indentedJSON(out)
}
