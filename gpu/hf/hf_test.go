package hf

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

func config() gpu.Config {
	return gpu.Config{
		VocabSize: 11, HiddenSize: 8, IntermediateSize: 12, NumLayers: 2, NumHeads: 4, NumKVHeads: 2, RopeTheta: 10000,
		RMSNormEps: 1e-5, TieEmbeddings: true, MaxPositions: 64, BOSToken: 0, EOSToken: 2, InitStd: 0.02,
	}
}

func weights(c gpu.Config) *gpu.Weights {
	rng := rand.New(rand.NewPCG(1, 2))
	w := &gpu.Weights{}
	for _, s := range c.Layout() {
		n := 1
		for _, x := range s.Shape {
			n *= x
		}
		data := make([]float32, n)
		for i := range data {
			data[i] = float32(rng.NormFloat64())
		}
		w.Tensors = append(w.Tensors, gpu.Tensor{Name: s.Name, Shape: s.Shape, Data: data})
	}
	return w
}

const tokenizerJSON = `{"added_tokens":[{"id":0,"content":"<bos>"},{"id":2,"content":"</answer>"}],"model":{}}`

func contents(t *testing.T, dir string) map[string]string {
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		name, err := filepath.Rel(dir, path)
		out[filepath.ToSlash(name)] = string(b)
		return err
	}))
	return out
}

func TestASavedFolderRoundTripsBitForBit(t *testing.T) {
	for name, change := range map[string]func(*gpu.Config){
		"tied":       func(*gpu.Config) {},
		"untied":     func(c *gpu.Config) { c.TieEmbeddings = false },
		"value head": func(c *gpu.Config) { c.ValueHead = true },
		"head dim":   func(c *gpu.Config) { c.HeadDim = 6 },
		"no tokens":  func(c *gpu.Config) { c.BOSToken, c.EOSToken = NoToken, NoToken },
	} {
		t.Run(name, func(t *testing.T) {
			c := config()
			change(&c)
			w := weights(c)
			dir := t.TempDir()
			first, second := filepath.Join(dir, "a"), filepath.Join(dir, "b")
			require.NoError(t, Save(first, c, w, []byte(tokenizerJSON), safetensors.F32))
			m, err := Load(first)
			require.NoError(t, err)
			require.Equal(t, w, m.Weights)
			require.Equal(t, tokenizerJSON, string(m.Tokenizer))
			want := c
			want.Architectures, want.ModelType, want.DType, want.HeadDim = []string{"LlamaForCausalLM"}, "llama", "float32", c.AttentionDim()
			require.Equal(t, want, m.Config)

			require.NoError(t, Save(second, m.Config, m.Weights, m.Tokenizer, safetensors.F32))
			require.Equal(t, contents(t, first), contents(t, second))
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, entries, 2, "nothing is left beside the folders")
		})
	}
}

func TestBF16Folder(t *testing.T) {
	c := config()
	w := weights(c)
	dir := filepath.Join(t.TempDir(), "m")
	require.NoError(t, Save(dir, c, w, nil, safetensors.BF16))
	m, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, "bfloat16", m.Config.DType)
	require.Nil(t, m.Tokenizer)
	for i, tensor := range w.Tensors {
		for j, v := range tensor.Data {
			require.Equal(t, safetensors.RoundBF16(v), m.Weights.Tensors[i].Data[j])
		}
	}
}

func TestFilesAreWhatTransformersReads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	require.NoError(t, Save(dir, config(), weights(config()), []byte(tokenizerJSON), safetensors.F32))
	got := contents(t, dir)
	require.JSONEq(t, `{
		"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2, "rope_theta": 10000,
		"rms_norm_eps": 1e-5, "tie_word_embeddings": true, "max_position_embeddings": 64, "torch_dtype": "float32",
		"bos_token_id": 0, "eos_token_id": 2, "initializer_range": 0.02, "hidden_act": "silu", "attention_bias": false,
		"attention_dropout": 0, "mlp_bias": false, "pretraining_tp": 1, "use_cache": true, "rope_scaling": null}`, got["config.json"])
	require.JSONEq(t, `{"_from_model_config": true, "bos_token_id": 0, "eos_token_id": 2}`, got["generation_config.json"])
	require.JSONEq(t, `{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "</answer>",
		"model_max_length": 64, "clean_up_tokenization_spaces": false}`, got["tokenizer_config.json"])
}

func TestSaveReplacesASavedFolderOnly(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "m")
	c := config()
	require.NoError(t, Save(dir, c, weights(c), []byte(tokenizerJSON), safetensors.F32))
	other := weights(c)
	other.Tensors[0].Data[0] = 42
	require.NoError(t, Save(dir, c, other, nil, safetensors.F32))
	m, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, other, m.Weights)
	require.Nil(t, m.Tokenizer, "the old tokenizer went with the old folder")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("keep"), 0o600))
	require.ErrorContains(t, Save(dir, c, weights(c), nil, safetensors.F32), "the folder holds notes.txt")
	m, err = Load(dir)
	require.NoError(t, err)
	require.Equal(t, other, m.Weights)
	entries, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestAFailedSaveLeavesTheOldFolder(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "m")
	require.NoError(t, Save(dir, config(), weights(config()), nil, safetensors.F32))
	before := contents(t, dir)
	err := saveFolder(dir, []file{
		{"config.json", func(w io.Writer) error { _, err := w.Write([]byte("{}")); return err }},
		{"model.safetensors", func(io.Writer) error { return errors.New("disk full") }},
	})
	require.EqualError(t, err, "disk full")
	require.Equal(t, before, contents(t, dir))
	entries, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestExchangeInSteps(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, d := range []string{a, b} {
		require.NoError(t, os.Mkdir(d, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(d, "name"), []byte(filepath.Base(d)), 0o600))
	}
	require.NoError(t, exchangeInSteps(a, b))
	require.Equal(t, "b", contents(t, a)["name"])
	require.Equal(t, "a", contents(t, b)["name"])
}

func TestSaveRefusesWeightsOfAnotherModel(t *testing.T) {
	c := config()
	w := weights(c)
	w.Tensors[1].Shape = []int{2, 4}
	w.Tensors = append(w.Tensors[:3], w.Tensors[4:]...)
	w.Tensors = append(w.Tensors, gpu.Tensor{Name: "odd", Shape: []int{1}, Data: []float32{1}})
	err := Save(filepath.Join(t.TempDir(), "m"), c, w, nil, safetensors.F32)
	require.ErrorIs(t, err, gpu.ErrMismatch)
	require.ErrorContains(t, err, `tensor "model.layers.0.input_layernorm.weight" has shape [2 4], the configuration says [8]`)
	require.ErrorContains(t, err, `tensor "model.layers.0.self_attn.k_proj.weight" is missing`)
	require.ErrorContains(t, err, `tensor "odd" is not the model's`)
}

// shard cuts a saved folder's weights into two files with an index.
func shard(t *testing.T, dir string) {
	c := config()
	w := weights(c)
	require.NoError(t, Save(dir, c, w, nil, safetensors.F32))
	require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
	index := map[string]string{}
	for i, name := range []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		part := w.Tensors[:5]
		if i == 1 {
			part = append([]gpu.Tensor{{Name: "model.layers.0.self_attn.rotary_emb.inv_freq", Shape: []int{1}, Data: []float32{1}}}, w.Tensors[5:]...)
		}
		b, err := safetensors.Encode(&gpu.Weights{Tensors: part}, safetensors.F32)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		for _, tensor := range part {
			index[tensor.Name] = name
		}
	}
	writeIndex(t, dir, index)
}

func writeIndex(t *testing.T, dir string, index map[string]string) {
	b, err := json.Marshal(map[string]any{"metadata": map[string]int{"total_size": 1}, "weight_map": index})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), b, 0o600))
}

func TestLoadShards(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	shard(t, dir)
	m, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, weights(config()), m.Weights)

	second := filepath.Join(dir, "model-00002-of-00002.safetensors")
	b, err := os.ReadFile(second)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(second, b[:len(b)-4], 0o600))
	_, err = Load(dir)
	require.ErrorIs(t, err, safetensors.ErrMalformed)
	require.ErrorContains(t, err, "model-00002-of-00002.safetensors")
	require.ErrorContains(t, err, "cut short")

	require.NoError(t, os.Remove(second))
	_, err = Load(dir)
	require.ErrorIs(t, err, os.ErrNotExist)

	for name, c := range map[string]struct {
		index map[string]string
		fault string
	}{
		"outside": {map[string]string{"x": "../model.safetensors"}, `"../model.safetensors" is not the name of a file in the folder`},
		"empty":   {nil, "weight_map is empty"},
		"moved":   {map[string]string{"x": "model-00001-of-00002.safetensors"}, "is not where"},
	} {
		writeIndex(t, dir, c.index)
		_, err = Load(dir)
		require.ErrorContains(t, err, c.fault, name)
	}
}

func TestLoadNamesWhatIsWrong(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	for fault, change := range map[string]string{
		`parse config.json`: `{"vocab_size":`,
		`tensor "model.norm.weight" has shape [8], th`: `{"model_type":"llama","vocab_size":11,"hidden_size":16,"intermediate_size":12,"num_hidden_layers":2,
			"num_attention_heads":4,"rope_theta":10000}`,
		`config.json and the weights are not of one model`: `{"model_type":"qwen2","vocab_size":11,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,
			"num_attention_heads":4,"num_key_value_heads":2,"rope_theta":10000}`,
	} {
		dir := filepath.Join(t.TempDir(), "m")
		require.NoError(t, Save(dir, config(), weights(config()), nil, safetensors.F32))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(change), 0o600))
		_, err := Load(dir)
		require.ErrorContains(t, err, fault)
	}
}
