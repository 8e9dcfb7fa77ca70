package hf_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// moduleFolder writes a folder of a family that Transformers alone has, with changes to its config.json; null removes a key.
func moduleFolder(t *testing.T, changes string) string {
	t.Helper()
	keys := map[string]any{
		"architectures": []string{"Gemma2ForCausalLM"}, "model_type": "gemma2", "vocab_size": 7, "hidden_size": 4, "num_hidden_layers": 1,
		"num_attention_heads": 2, "max_position_embeddings": 64, "final_logit_softcapping": 30.0, "torch_dtype": "bfloat16", "eos_token_id": []int{1, 5},
	}
	var more map[string]any
	require.NoError(t, json.Unmarshal([]byte(changes), &more))
	for k, v := range more {
		if keys[k] = v; v == nil {
			delete(keys, k)
		}
	}
	dir := t.TempDir()
	b, err := json.Marshal(keys)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, gpu.ConfigFile), b, 0o600))
	w := &gpu.Weights{}
	for _, x := range []struct {
		name  string
		shape []int
	}{{"model.layers.10.mlp.experts.down", []int{2, 1, 2}}, {"model.layers.2.norm", []int{4}}, {"model.embed_tokens.weight", []int{7, 4}}} {
		tensor := gpu.Tensor{Name: x.name, Shape: x.shape}
		for i := range tensor.Elements() {
			tensor.Data = append(tensor.Data, float32(i)/4)
		}
		w.Tensors = append(w.Tensors, tensor)
	}
	data, err := safetensors.Encode(w, safetensors.BF16)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, gpu.WeightsFile), data, 0o600))
	return dir
}

// A decoder of another family is kept as it is: its tensors are those of its files, and every folder that is made of it has its config.json.
func TestADecoderOfAnotherFamilyKeepsItsTensorsAndItsConfiguration(t *testing.T) {
	dir := moduleFolder(t, `{}`)
	f, err := hf.Open(dir)
	require.NoError(t, err)
	defer f.Close()
	c := f.Config
	require.Equal(t, "gemma2", hf.FamilyName(c))
	require.True(t, c.TieEmbeddings, "by the family's default")
	require.Equal(t, []int32{1, 5}, append([]int32{c.EOSToken}, c.StopTokens...))
	var names []string
	for _, x := range c.Layout() {
		names = append(names, x.Name)
	}
	require.Equal(t, []string{"model.embed_tokens.weight", "model.layers.2.norm", "model.layers.10.mlp.experts.down"}, names)
	alone, err := hf.ReadConfig(dir)
	require.NoError(t, err)
	require.Equal(t, c, alone)

	w, err := f.Weights().Resident(t.Context())
	require.NoError(t, err)
	out := filepath.Join(t.TempDir(), "out")
	c.ValueHead = true
	head := gpu.Tensor{Name: gpu.ValueHeadTensor, Shape: []int{1, 4}, Data: make([]float32, 4)}
	_, err = hf.Export(t.Context(), out, c, append(w.Tensors, head), gpu.ExportOptions{})
	require.NoError(t, err)
	back, err := hf.Load(out)
	require.NoError(t, err)
	require.True(t, back.Config.ValueHead)
	require.Equal(t, w.Tensors, back.Weights.Tensors[:3])
	again, err := hf.Open(out)
	require.NoError(t, err)
	defer again.Close()
	require.NoError(t, again.Fits(f.Config))
	var before, after map[string]any
	for path, to := range map[string]*map[string]any{dir: &before, out: &after} {
		b, err := os.ReadFile(filepath.Join(path, gpu.ConfigFile))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, to))
	}
	before["torch_dtype"] = "float32"
	require.Equal(t, before, after)

	other, err := hf.Open(moduleFolder(t, `{"final_logit_softcapping":20}`))
	require.NoError(t, err)
	defer other.Close()
	err = other.Fits(f.Config)
	require.ErrorIs(t, err, gpu.ErrMismatch)
	require.ErrorContains(t, err, "final_logit_softcapping is 20, the model's is 30")
}

// The same configuration, sent with a version's manifest, does without the tensors, which the weights have.
func TestAnotherFamilysConfigurationIsSentWithoutItsTensors(t *testing.T) {
	f, err := hf.Open(moduleFolder(t, `{}`))
	require.NoError(t, err)
	defer f.Close()
	b, err := json.Marshal(f.Config)
	require.NoError(t, err)
	var c gpu.Config
	require.NoError(t, json.Unmarshal(b, &c))
	require.NoError(t, c.Validate())
	require.NoError(t, f.Fits(c))
	require.Empty(t, c.Layout())
	require.Equal(t, f.Config.Layout(), c.WithTensorsOf(f.Weights()).Layout())
}

// The engine in Go refuses it and names the engine that does not.
func TestAnotherFamilyIsRefusedByTheEngineInGo(t *testing.T) {
	for changes, why := range map[string]string{
		`{}`: `model_type is "gemma2"`,
		`{"model_type":"mistral","architectures":["MistralForCausalLM"],"num_key_value_heads":2,"sliding_window":32,"intermediate_size":8,"rope_theta":1e4,"final_logit_softcapping":null}`:               "sliding_window is 32",
		`{"model_type":"llama","architectures":["LlamaForCausalLM"],"intermediate_size":8,"rope_theta":1e4,"rope_scaling":{"rope_type":"yarn","factor":4,"beta_fast":32},"final_logit_softcapping":null}`: `rope_type is "yarn"`,
	} {
		c, err := hf.ReadConfig(moduleFolder(t, changes))
		require.NoError(t, err, changes)
		_, err = native.New(c, native.Options{})
		require.ErrorIs(t, err, gpu.ErrNeedsTransformers)
		require.ErrorContains(t, err, why)
		_, err = native.NewDecoder(c, &gpu.Weights{}, gpu.DecoderOptions{Slots: 1, MaxTokens: 8}, 1)
		require.ErrorIs(t, err, gpu.ErrNeedsTransformers)
	}
}

// What is trained through Transformers neither is refused by name.
func TestModelsThatAreNotTrainedAreRefusedByName(t *testing.T) {
	for changes, why := range map[string]string{
		`{"auto_map":{"AutoModelForCausalLM":"modeling_x.X"}}`:         `auto_map is {"AutoModelForCausalLM":"modeling_x.X"}: it names code in the folder, which is not run`,
		`{"is_encoder_decoder":true}`:                                  "is_encoder_decoder is true: decoders alone are trained",
		`{"vision_config":{"hidden_size":8}}`:                          "vision_config is there: models that read images or sound are not trained",
		`{"architectures":["Gemma2ForSequenceClassification"]}`:        "want a decoder with its language model's head",
		`{"quantization_config":{"bits":4}}`:                           "quantised weights are not read",
		`{"resid_pdrop":0.1}`:                                          "resid_pdrop is 0.1: the engines drop nothing",
		`{"vocab_size":null}`:                                          "vocab_size is missing",
		`{"model_type":"mistral","sliding_window":32,"x":1}`:           "x is 1: weir does not know the key",
		`{"use_bidirectional_attention":true}`:                         "use_bidirectional_attention is true: the model reads the tokens",
		`{"torch_dtype":"int4"}`:                                       `dtype is "int4"`,
		`{"max_position_embeddings":null,"final_logit_softcapping":1}`: "max_position_embeddings is missing",
	} {
		_, err := hf.Open(moduleFolder(t, changes))
		require.ErrorContains(t, err, why)
	}
}

// Angles that are others for a longer sequence bound the length: within it they are those of the short ones.
func TestPositionsEndWhereAnglesChange(t *testing.T) {
	for _, changes := range []string{
		`{"original_max_position_embeddings":16,"rope_scaling":{"type":"longrope","short_factor":[1],"long_factor":[2]}}`,
		`{"rope_parameters":{"rope_type":"longrope","original_max_position_embeddings":16}}`,
	} {
		c, err := hf.ReadConfig(moduleFolder(t, changes))
		require.NoError(t, err)
		require.Equal(t, 16, c.MaxPositions)
	}
}
