package hf

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// foreign makes a folder as others write one: of a small model of a family, in files of mixed types with an index, and
// everything that lies beside the weights. It returns the weights as they are stored.
func foreign(t *testing.T, dir, text string) *gpu.Weights {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	small := change(t, text, `{"vocab_size":16,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":4,
		"num_key_value_heads":2,"head_dim":4,"eos_token_id":2,"layer_types":null}`)
	for name, data := range map[string]string{
		"config.json": small, "generation_config.json": `{"eos_token_id": [2, 3], "temperature": 0.6}`, "tokenizer.json": `{"model":  {}}`,
		"tokenizer_config.json": "{}\n\n", "vocab.json": "{}", "merges.txt": "#", "special_tokens_map.json": "{ }", "added_tokens.json": "{}",
		"chat_template.jinja": "{{ messages }}", "LICENSE": "free", "notes.txt": "not carried",
		"additional_chat_templates/tool_use.jinja": "{{ tools }}",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
	}
	c, err := ReadConfig(dir)
	require.NoError(t, err)
	w := weights(c)
	weightMap := map[string]string{}
	for i, name := range []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		half := len(w.Tensors) / 2
		part := slices.Clone(w.Tensors[i*half : len(w.Tensors)*(i+1)/2])
		slices.Reverse(part) // not in our order
		dtype := []safetensors.DType{safetensors.BF16, safetensors.F16}[i]
		if i == 1 {
			part = append(part, gpu.Tensor{Name: "model.layers.0.self_attn.rotary_emb.inv_freq", Shape: []int{2}, Data: []float32{1, 0.5}})
			if c.TieEmbeddings {
				head := w.Tensors[0]
				head.Name = gpu.HeadTensor
				head.Data = slices.Clone(head.Data)
				part = append(part, head)
			}
		}
		b, err := safetensors.Encode(&gpu.Weights{Tensors: part}, dtype)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		for _, x := range part {
			weightMap[x.Name] = name
		}
	}
	writeIndex(t, dir, weightMap)
	return w
}

// What a run does with a folder: an engine exports its weights, the source's files go beside them, and the model is written in the
// source's form. With the same numbers every byte is the source's.
func TestAFolderComesBackByteForByte(t *testing.T) {
	for name, text := range map[string]string{"qwen2": qwen2v4, "qwen3": newer(t, qwen3v4), "llama": llamav4, "untied": change(t, llamav4, `{"tie_word_embeddings":false}`)} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			source, step, saved := filepath.Join(parent, "source"), filepath.Join(parent, "step"), filepath.Join(parent, "saved")
			foreign(t, source, text)
			if name != "untied" { // the head that is stored must be the embeddings, in their type
				tie(t, source)
			}
			m, err := Load(source)
			require.NoError(t, err)
			m.Config.ValueHead = true
			with, all := gpu.WithValueHead(m.Config, m.Weights, true)
			_, err = Export(t.Context(), step, with, all.Tensors, gpu.ExportOptions{})
			require.NoError(t, err)
			files, err := OpenFiles(source)
			require.NoError(t, err)
			require.NoError(t, files.Write(step))
			back, err := Open(step)
			require.NoError(t, err)
			require.True(t, back.Config.ValueHead, "the head's file says so")
			require.NoError(t, back.Fits(m.Config))
			require.NoError(t, back.Close())

			written, err := Reproduce(t.Context(), step, saved, gpu.ExportOptions{})
			require.NoError(t, err)
			want, got := contents(t, source), contents(t, saved)
			delete(want, "notes.txt")
			require.Equal(t, want, got)
			require.Len(t, written, len(got))
			require.Equal(t, []string{"saved", "source", "step"}, names(t, parent), "nothing is left beside them")

			again, err := OpenFiles(saved)
			require.NoError(t, err)
			for _, x := range files.Names() {
				require.True(t, files.Same(again, x), x)
			}
			carried, err := OpenFiles(step)
			require.NoError(t, err)
			require.True(t, files.Same(carried, sourceName), "a model that is trained again keeps the form of its first source")
		})
	}
}

// tie stores the head of a tied model in the embeddings' type.
func tie(t *testing.T, dir string) {
	t.Helper()
	f, err := safetensors.OpenFolder(dir, weightsName)
	require.NoError(t, err)
	defer f.Close()
	for _, x := range f.Files() {
		w := &gpu.Weights{}
		for _, s := range x.Tensors {
			y := gpu.Tensor{Name: s.Name, Shape: s.Shape, Data: make([]float32, gpu.Tensor{Shape: s.Shape}.Elements())}
			require.NoError(t, f.Read(t.Context(), s.Name, y.Data))
			w.Tensors = append(w.Tensors, y)
		}
		at := slices.IndexFunc(w.Tensors, func(y gpu.Tensor) bool { return y.Name == gpu.HeadTensor })
		if at < 0 {
			continue
		}
		require.NoError(t, f.Read(t.Context(), embeddings, w.Tensors[at].Data))
		b, err := safetensors.Encode(w, safetensors.BF16)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, x.Name), b, 0o600))
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

func TestOnlyNumbersDifferAfterTraining(t *testing.T) {
	parent := t.TempDir()
	source, step, saved := filepath.Join(parent, "source"), filepath.Join(parent, "step"), filepath.Join(parent, "saved")
	foreign(t, source, change(t, qwen2v4, `{"tie_word_embeddings":false}`))
	m, err := Load(source)
	require.NoError(t, err)
	for _, x := range m.Weights.Tensors {
		for i := range x.Data {
			x.Data[i] += 0.25
		}
	}
	_, err = Export(t.Context(), step, m.Config, m.Weights.Tensors, gpu.ExportOptions{})
	require.NoError(t, err)
	files, err := OpenFiles(source)
	require.NoError(t, err)
	require.NoError(t, files.Write(step))
	_, err = Reproduce(t.Context(), step, saved, gpu.ExportOptions{})
	require.NoError(t, err)
	got, want := contents(t, saved), contents(t, source)
	for name, b := range want {
		switch {
		case name == "notes.txt":
		case filepath.Ext(name) == ".safetensors":
			require.Len(t, got[name], len(b))
			require.False(t, b == got[name], name)
			n := 8 + int(binary.LittleEndian.Uint64([]byte(b)))
			require.Equal(t, b[:n], got[name][:n], "the header")
		default:
			require.Equal(t, b, got[name], name)
		}
	}
	_, err = Reproduce(t.Context(), step, saved, gpu.ExportOptions{})
	require.ErrorContains(t, err, "name an empty one")

	// A number that the source's type does not have is refused, and nothing is left.
	m.Weights.Tensors[len(m.Weights.Tensors)-1].Data[3] = 1e30
	require.NoError(t, os.RemoveAll(step))
	_, err = Export(t.Context(), step, m.Config, m.Weights.Tensors, gpu.ExportOptions{})
	require.NoError(t, err)
	require.NoError(t, files.Write(step))
	_, err = Reproduce(t.Context(), step, filepath.Join(parent, "other"), gpu.ExportOptions{})
	require.ErrorIs(t, err, safetensors.ErrNotFinite)
	require.ErrorContains(t, err, `tensor "lm_head.weight"`)
	require.False(t, exists(parent, "other"))
}

func TestAModelWithoutASourceIsWrittenAsAsked(t *testing.T) {
	parent := t.TempDir()
	step, saved := filepath.Join(parent, "step"), filepath.Join(parent, "saved")
	c := config()
	c.ValueHead = true
	_, err := Export(t.Context(), step, c, weights(c).Tensors, gpu.ExportOptions{})
	require.NoError(t, err)
	require.NoError(t, WriteTokenizer(step, c, []byte(tokenizerJSON)))
	_, err = Reproduce(t.Context(), step, saved, gpu.ExportOptions{DType: gpu.BFloat16, ShardBytes: 500})
	require.NoError(t, err)
	m, err := Load(saved)
	require.NoError(t, err)
	require.False(t, m.Config.ValueHead, "the head is the trainer's")
	require.Equal(t, "bfloat16", m.Config.DType)
	require.Equal(t, tokenizerJSON, string(m.Tokenizer))
	require.True(t, exists(saved, indexName))

	// A config.json that speaks of a head is no file to carry.
	files, err := OpenFiles(step)
	require.NoError(t, err)
	require.NotContains(t, files.Names(), configName)
	require.Contains(t, files.Names(), tokenizerName)
	var none *Files
	require.NoError(t, none.Write(step))
	require.Empty(t, none.Names())
}

func TestAHeadThatIsNotTheEmbeddingsIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	c := config()
	w := weights(c)
	head := gpu.Tensor{Name: gpu.HeadTensor, Shape: w.Tensors[0].Shape, Data: slices.Clone(w.Tensors[0].Data)}
	head.Data[1] = float32(math.Pi)
	require.NoError(t, Save(dir, c, w, nil, safetensors.F32))
	b, err := safetensors.Encode(&gpu.Weights{Tensors: append(slices.Clone(w.Tensors), head)}, safetensors.F32)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, weightsName), b, 0o600))
	_, err = Load(dir)
	require.ErrorIs(t, err, gpu.ErrMismatch)
	require.ErrorContains(t, err, `"lm_head.weight" differs from "model.embed_tokens.weight" although tie_word_embeddings is true`)
}

func TestOtherFormsOfAModelAreNamed(t *testing.T) {
	for file, want := range map[string]string{
		"adapter_config.json": "merge it into its model", "model-Q4_K_M.gguf": "model-Q4_K_M.gguf is not read",
		"pytorch_model-00001-of-00002.bin": "save the model anew as safetensors",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
		_, err := Open(dir)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorContains(t, err, want)
		require.NoError(t, os.WriteFile(filepath.Join(dir, configName), []byte(qwen2v4), 0o600))
		_, err = Open(dir)
		require.ErrorContains(t, err, want)
	}
}

func TestASourceThatIsBrokenIsRefused(t *testing.T) {
	parent := t.TempDir()
	step := filepath.Join(parent, "step")
	_, err := Export(t.Context(), step, config(), weights(config()).Tensors, gpu.ExportOptions{})
	require.NoError(t, err)
	put := func(s any) error {
		b, err := json.Marshal(s)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(step, sourceName), b, 0o600))
		_, err = Reproduce(t.Context(), step, filepath.Join(parent, "saved"), gpu.ExportOptions{})
		require.False(t, exists(parent, "saved"))
		return err
	}
	require.ErrorContains(t, put([]int{1}), "parse source.json")
	require.ErrorContains(t, put(source{Files: []sourceOfFile{{Name: "../x.safetensors"}}}), "is not the name of a file of weights")
	require.ErrorContains(t, put(source{Files: []sourceOfFile{{Name: "model.safetensors", Header: "{"}}}), "model.safetensors: malformed")
	require.ErrorContains(t, put(source{Files: []sourceOfFile{{Name: "model.safetensors", Header: `{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`}}}),
		`tensor "x" is missing`)
	require.ErrorIs(t, put(source{Files: []sourceOfFile{{
		Name: "model.safetensors", Header: `{"model.norm.weight":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}}`,
	}}}), gpu.ErrMismatch, "not all of the model")
}
