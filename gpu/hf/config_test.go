package hf

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/gpu"
)

// Configurations as Transformers 4 writes them, at the shapes of Qwen2.5-0.5B-Instruct, Qwen3-0.6B and Llama-3.2-1B-Instruct.
const (
	qwen2v4 = `{"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,"bos_token_id":151643,"eos_token_id":151645,"hidden_act":"silu",
		"hidden_size":896,"initializer_range":0.02,"intermediate_size":4864,"max_position_embeddings":32768,"max_window_layers":21,
		"model_type":"qwen2","num_attention_heads":14,"num_hidden_layers":24,"num_key_value_heads":2,"rms_norm_eps":1e-06,
		"rope_theta":1000000.0,"sliding_window":32768,"tie_word_embeddings":true,"torch_dtype":"bfloat16",
		"transformers_version":"4.43.1","use_cache":true,"use_mrope":false,"use_sliding_window":false,"vocab_size":151936}`
	qwen3v4 = `{"architectures":["Qwen3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"bos_token_id":151643,"eos_token_id":151645,
		"head_dim":128,"hidden_act":"silu","hidden_size":1024,"initializer_range":0.02,"intermediate_size":3072,
		"max_position_embeddings":40960,"max_window_layers":28,"model_type":"qwen3","num_attention_heads":16,"num_hidden_layers":28,
		"num_key_value_heads":8,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000,"sliding_window":null,
		"tie_word_embeddings":true,"torch_dtype":"bfloat16","transformers_version":"4.51.0","use_cache":true,
		"use_sliding_window":false,"vocab_size":151936}`
	llamav4 = `{"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"bos_token_id":128000,
		"eos_token_id":[128001,128008,128009],"head_dim":64,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
		"intermediate_size":8192,"max_position_embeddings":131072,"mlp_bias":false,"model_type":"llama","num_attention_heads":32,
		"num_hidden_layers":16,"num_key_value_heads":8,"pretraining_tp":1,"rms_norm_eps":1e-05,"rope_scaling":{"factor":32.0,
		"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},
		"rope_theta":500000.0,"tie_word_embeddings":true,"torch_dtype":"bfloat16","transformers_version":"4.45.0.dev0",
		"use_cache":true,"vocab_size":128256}`
)

// mistral is as Mistral-Nemo's.
const mistral = `{"architectures":["MistralForCausalLM"],"attention_dropout":0.0,"bos_token_id":1,"eos_token_id":2,"head_dim":128,
	"hidden_act":"silu","hidden_size":5120,"initializer_range":0.02,"intermediate_size":14336,"max_position_embeddings":131072,
	"model_type":"mistral","num_attention_heads":32,"num_hidden_layers":40,"num_key_value_heads":8,"rms_norm_eps":1e-05,
	"rope_theta":1000000.0,"sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.43.0.dev0",
	"use_cache":true,"vocab_size":131072}`

// change gives a configuration other keys; null removes one.
func change(t testing.TB, config, with string) string {
	t.Helper()
	var keys, other map[string]any
	require.NoError(t, json.Unmarshal([]byte(config), &keys))
	require.NoError(t, json.Unmarshal([]byte(with), &other))
	for key, v := range other {
		keys[key] = v
		if v == nil {
			delete(keys, key)
		}
	}
	b, err := json.Marshal(keys)
	require.NoError(t, err)
	return string(b)
}

// newer is a configuration as Transformers 5 writes it.
func newer(t testing.TB, config string) string {
	t.Helper()
	var keys map[string]any
	require.NoError(t, json.Unmarshal([]byte(config), &keys))
	rope, _ := keys["rope_scaling"].(map[string]any)
	if rope == nil {
		rope = map[string]any{"rope_type": "default"}
	}
	rope["rope_theta"] = keys["rope_theta"]
	keys["rope_parameters"], keys["dtype"], keys["transformers_version"] = rope, keys["torch_dtype"], "5.1.0"
	for _, key := range []string{"rope_theta", "rope_scaling", "torch_dtype"} {
		delete(keys, key)
	}
	if keys["model_type"] != "llama" {
		var types []string
		for range int(keys["num_hidden_layers"].(float64)) {
			types = append(types, "full_attention")
		}
		keys["layer_types"] = types
	}
	b, err := json.Marshal(keys)
	require.NoError(t, err)
	return string(b)
}

func TestBothDialectsOfEachFamily(t *testing.T) {
	scaling := &gpu.RopeScaling{Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192}
	for text, want := range map[string]gpu.Config{
		qwen2v4: {
			Architectures: []string{"Qwen2ForCausalLM"}, ModelType: "qwen2", VocabSize: 151936, HiddenSize: 896, IntermediateSize: 4864,
			NumLayers: 24, NumHeads: 14, NumKVHeads: 2, RopeTheta: 1e6, QKVBias: true, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 32768,
			DType: "bfloat16", BOSToken: 151643, EOSToken: 151645, InitStd: 0.02,
		},
		qwen3v4: {
			Architectures: []string{"Qwen3ForCausalLM"}, ModelType: "qwen3", VocabSize: 151936, HiddenSize: 1024, IntermediateSize: 3072,
			NumLayers: 28, NumHeads: 16, NumKVHeads: 8, HeadDim: 128, RopeTheta: 1e6, QKNorm: true, RMSNormEps: 1e-6, TieEmbeddings: true,
			MaxPositions: 40960, DType: "bfloat16", BOSToken: 151643, EOSToken: 151645, InitStd: 0.02,
		},
		llamav4: {
			Architectures: []string{"LlamaForCausalLM"}, ModelType: "llama", VocabSize: 128256, HiddenSize: 2048, IntermediateSize: 8192,
			NumLayers: 16, NumHeads: 32, NumKVHeads: 8, HeadDim: 64, RopeTheta: 500000, RopeScaling: scaling, RMSNormEps: 1e-5,
			TieEmbeddings: true, MaxPositions: 131072, DType: "bfloat16", BOSToken: 128000, EOSToken: 128001,
			StopTokens: []int32{128008, 128009}, InitStd: 0.02,
		},
	} {
		for _, dialect := range []string{text, newer(t, text)} {
			c, err := decodeConfig([]byte(dialect))
			require.NoError(t, err, dialect)
			require.Equal(t, want, c)
			again, err := encodeConfig(c, "BF16")
			require.NoError(t, err)
			back, err := decodeConfig(again)
			require.NoError(t, err)
			c.HeadDim = c.AttentionDim()
			require.Equal(t, c, back, "what is written reads back")
		}
	}
}

func TestWhatAConfigLeavesOutIsTransformersDefault(t *testing.T) {
	c, err := decodeConfig([]byte(`{"model_type":"llama","vocab_size":8,"hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,
		"num_attention_heads":2,"num_key_value_heads":null,"head_dim":null,"bos_token_id":null,"rope_theta":10000,
		"rope_scaling":{"type":"default"},"_name_or_path":"x","unsloth_fixed":true,"quantization_config":null,"other":[],"more":{}}`))
	require.NoError(t, err)
	require.Equal(t, gpu.Config{
		ModelType: "llama", VocabSize: 8, HiddenSize: 8, IntermediateSize: 8, NumLayers: 1, NumHeads: 2, NumKVHeads: 2,
		RopeTheta: 10000, RMSNormEps: 1e-6, MaxPositions: 2048, BOSToken: NoToken, EOSToken: NoToken, InitStd: 0.02,
	}, c)
}

func TestWhatIsNotComputedIsRefusedByName(t *testing.T) {
	for _, c := range []struct{ config, with, want string }{
		{qwen2v4, `{"model_type":"olmo2"}`, `model_type is "olmo2": llama, qwen2, qwen3, and mistral without a sliding window are read`},
		{mistral, `{"sliding_window":4096}`, "sliding_window is 4096: the engines attend to every token"},
		{mistral, `{"use_sliding_window":true}`, "use_sliding_window is true"},
		{mistral, `{"layer_types":["sliding_attention"]}`, `layer_types[0] is "sliding_attention"`},
		{mistral, `{"num_key_value_heads":null}`, "num_key_value_heads is missing"},
		{mistral, `{"architectures":["LlamaForCausalLM"]}`, "want MistralForCausalLM"},
		{mistral, `{"qkv_bias":true}`, "qkv_bias is true: weir does not know the key"},
		{qwen2v4, `{"model_type":null}`, `model_type is ""`},
		{qwen2v4, `{"rope_theta":null}`, "rope_theta is missing"},
		{qwen2v4, `{"rope_theta":-1}`, "rope_theta is -1: must be positive"},
		{qwen2v4, `{"rope_theta":"x"}`, `rope_theta is "x": want a number`},
		{qwen2v4, `{"use_sliding_window":true}`, "use_sliding_window is true"},
		{qwen2v4, `{"layer_types":["full_attention","sliding_attention"]}`, `layer_types[1] is "sliding_attention"`},
		{qwen2v4, `{"layer_types":["full_attention"]}`, "layer_types has 1 entries, num_hidden_layers is 24"},
		{qwen2v4, `{"num_key_value_heads":3}`, "num_attention_heads 14 is not a multiple of num_key_value_heads 3"},
		{qwen2v4, `{"num_key_value_heads":null}`, "num_key_value_heads is missing"},
		{qwen2v4, `{"architectures":["Qwen2ForSequenceClassification"]}`, "want Qwen2ForCausalLM"},
		{qwen2v4, `{"rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":32768}}`, `rope_scaling: rope_type is "yarn"`},
		{qwen2v4, `{"rope_scaling":{"type":"mrope","mrope_section":[16,24,24]}}`, `rope_type is "mrope"`},
		{qwen2v4, `{"rope_parameters":{"rope_type":"default","rope_theta":10000}}`, "rope_theta is 1e+06, and 10000 in rope_parameters"},
		{qwen2v4, `{"rope_parameters":{"full_attention":{"rope_theta":1}}}`, "rope_parameters has an object full_attention"},
		{qwen2v4, `{"rope_parameters":[1]}`, "rope_parameters is [1]: want an object"},
		{qwen2v4, `{"hidden_act":"gelu"}`, `hidden_act is "gelu": the engines compute silu`},
		{qwen2v4, `{"attention_dropout":0.1}`, "attention_dropout is 0.1"},
		{qwen2v4, `{"quantization_config":{"bits":4}}`, "quantised weights are not read"},
		{qwen2v4, `{"partial_rotary_factor":0.5}`, "partial_rotary_factor is 0.5"},
		{qwen2v4, `{"num_experts":60}`, "num_experts is 60: weir does not know the key"},
		{qwen2v4, `{"final_logit_softcapping":30.0}`, "final_logit_softcapping is 30: weir does not know the key"},
		{qwen2v4, `{"auto_map":{"AutoModel":"modeling.X"}}`, "auto_map"},
		{qwen2v4, `{"auto_map":{"AutoTokenizer":"tokens.X","AutoConfig":"configuration.X"}}`, "auto_map"},
		{qwen2v4, `{"auto_map":["tokens.X"]}`, "auto_map"},
		{qwen2v4, `{"dual_chunk_attention_config":{"chunk_size":262144}}`, "dual_chunk_attention_config"},
		{llamav4, `{"rope_interleaved":true}`, "rope_interleaved is true: weir does not know the key"},
		{qwen2v4, `{"is_encoder_decoder":true}`, "is_encoder_decoder is true: weir does not know"},
		{qwen2v4, `{"torch_dtype":"int8"}`, `dtype is "int8"`},
		{qwen2v4, `{"vocab_size":"many"}`, `vocab_size is "many": want a whole number from 1 to`},
		{qwen2v4, `{"vocab_size":0}`, "vocab_size is 0: want a whole number from 1 to"},
		{qwen2v4, `{"vocab_size":10.5}`, "vocab_size is 10.5"},
		{qwen2v4, `{"num_hidden_layers":1000000000}`, "num_hidden_layers is 1000000000: want a whole number from 1 to 4096"},
		{qwen2v4, `{"hidden_size":897}`, "hidden_size 897 is not a multiple of num_attention_heads 14"},
		{qwen2v4, `{"rms_norm_eps":-1}`, "rms_norm_eps is -1: must be positive"},
		{qwen2v4, `{"eos_token_id":"end"}`, `eos_token_id: "end" is not a token id`},
		{qwen2v4, `{"eos_token_id":[1,-2]}`, "eos_token_id: token id -2 is negative"},
		{qwen2v4, `{"tie_word_embeddings":"yes"}`, `tie_word_embeddings is "yes": want true or false`},
		{qwen3v4, `{"attention_bias":true}`, "attention_bias is true"},
		{qwen3v4, `{"head_dim":null}`, "head_dim is missing: a qwen3 model has its own"},
		{qwen3v4, `{"head_dim":127}`, "head_dim is 127: must be positive and even"},
		{llamav4, `{"mlp_bias":true}`, "mlp_bias is true"},
		{llamav4, `{"sliding_window":4096}`, "sliding_window is 4096: a llama model has none"},
		{llamav4, `{"rope_scaling":{"rope_type":"llama3","factor":8}}`, "rope_scaling: low_freq_factor is missing"},
		{llamav4, `{"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4}}`, "original_max_position_embeddings is 0"},
		{llamav4, `{"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4,"original_max_position_embeddings":8192}}`, "low_freq_factor 4"},
		{llamav4, `{"rope_scaling":{"factor":8}}`, "rope_scaling: factor is 8 without a rope_type"},
		{llamav4, `{"rope_scaling":{"rope_type":"default","mystery":1}}`, "rope_scaling: mystery is 1: the key is not known"},
		{llamav4, `{"rope_parameters":{"rope_type":"default","rope_theta":500000}}`, "rope_parameters and rope_scaling are both there"},
	} {
		_, err := decodeConfig([]byte(change(t, c.config, c.with)))
		require.ErrorContains(t, err, c.want, c.with)
	}
	for text, want := range map[string]string{`[]`: "parse config.json", `null`: "want a JSON object", `{"a":`: "parse config.json"} {
		_, err := decodeConfig([]byte(text))
		require.ErrorContains(t, err, want)
	}
}

// Section 4 of the engines' review: what published folders have and no engine computes from.
func TestMarksThatChangeNothingAreAccepted(t *testing.T) {
	for _, text := range []string{qwen2v4, qwen3v4, llamav4} {
		want, err := decodeConfig([]byte(text))
		require.NoError(t, err)
		got, err := decodeConfig([]byte(change(t, text, `{"is_llama_config":true,"is_qwen2_config":true,"rope_interleaved":false,
			"neftune_noise_alpha":5,"use_reentrant_checkpointing":true,"auto_map":{"AutoTokenizer":["tokens.Slow","tokens.Fast"]}}`)))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// A mistral without a window computes what a llama does, whose model it is read as and written as.
func TestMistralWithoutAWindowIsALlama(t *testing.T) {
	want := gpu.Config{
		Architectures: []string{"LlamaForCausalLM"}, ModelType: "llama", VocabSize: 131072, HiddenSize: 5120, IntermediateSize: 14336,
		NumLayers: 40, NumHeads: 32, NumKVHeads: 8, HeadDim: 128, RopeTheta: 1e6, RMSNormEps: 1e-5, MaxPositions: 131072, DType: "bfloat16",
		BOSToken: 1, EOSToken: 2, InitStd: 0.02,
	}
	for _, text := range []string{mistral, newer(t, mistral)} {
		c, err := decodeConfig([]byte(text))
		require.NoError(t, err)
		require.Equal(t, want, c)
		again, err := encodeConfig(c, "BF16")
		require.NoError(t, err)
		back, err := decodeConfig(again)
		require.NoError(t, err)
		require.Equal(t, c, back, "what is written reads back")
	}
	// Where the key is missing, Transformers has a window of 4096.
	var keys map[string]any
	require.NoError(t, json.Unmarshal([]byte(mistral), &keys))
	delete(keys, "sliding_window")
	b, err := json.Marshal(keys)
	require.NoError(t, err)
	_, err = decodeConfig(b)
	require.EqualError(t, err, "config.json: sliding_window is missing: a mistral model has a window of 4096 tokens then; where it has none, the key is null")
}

// A number of layers that is refused is not held against the list of them.
func TestAnAbsurdNumberOfLayersIsOneFault(t *testing.T) {
	_, err := decodeConfig([]byte(change(t, qwen2v4, `{"num_hidden_layers":99999999,"layer_types":["full_attention"]}`)))
	require.EqualError(t, err, "config.json: num_hidden_layers is 99999999: want a whole number from 1 to 4096")
}

func TestEveryFaultOfAConfigIsTold(t *testing.T) {
	_, err := decodeConfig([]byte(`{"model_type":"qwen3","hidden_size":8,"num_attention_heads":2,"hidden_act":"relu","use_sliding_window":true,"x":1}`))
	for _, want := range []string{
		"vocab_size is missing", "intermediate_size is missing", "num_hidden_layers is missing", "num_key_value_heads is missing",
		"head_dim is missing", "rope_theta is missing", `hidden_act is "relu"`, "use_sliding_window is true", "x is 1: weir does not know the key",
	} {
		require.ErrorContains(t, err, want)
	}
}

// A value that means off is as good as no key, whatever the key.
func TestKeysThatAreOffAreAccepted(t *testing.T) {
	want, err := decodeConfig([]byte(qwen3v4))
	require.NoError(t, err)
	rapid.Check(t, func(rt *rapid.T) {
		key := rapid.StringMatching(`zz_[a-z_]{1,9}`).Draw(rt, "key")
		value := rapid.SampledFrom([]string{"null", "false", "0", "0.0", `""`, "[]", "{ }"}).Draw(rt, "value")
		got, err := decodeConfig([]byte(strings.Replace(qwen3v4, "{", `{"`+key+`":`+value+",", 1)))
		require.NoError(rt, err)
		require.Equal(rt, want, got)
	})
}

// Whatever the bytes are, what is accepted is valid and is written as the same model.
func FuzzDecodeConfig(f *testing.F) {
	for _, text := range []string{qwen2v4, qwen3v4, llamav4, mistral} {
		f.Add([]byte(text))
		f.Add([]byte(newer(f, text)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeConfig(data)
		if err != nil {
			return
		}
		require.NoError(t, c.Validate())
		b, err := encodeConfig(c, "F32")
		require.NoError(t, err)
		back, err := decodeConfig(b)
		require.NoError(t, err)
		require.Equal(t, c.Layout(), back.Layout())
		require.Equal(t, c.RopeSpeeds(), back.RopeSpeeds())
		require.Equal(t, c.EOSToken, back.EOSToken)
	})
}
