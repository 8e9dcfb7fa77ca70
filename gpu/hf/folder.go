package hf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// Folder is an open model folder: its configuration, and its weights in files whose headers are read and fit the configuration.
// The numbers are read when asked for.
type Folder struct {
	Config gpu.Config
	dir    string
	files  *safetensors.Folder
	// tensors are the model's, in its order, without numbers.
	tensors []gpu.Tensor
}

// Open opens a folder in Hugging Face's form. Errors name the file. They wrap gpu.ErrMismatch where the weights do not fit the
// configuration, and safetensors.ErrMalformed where a file of weights is broken.
func Open(dir string) (*Folder, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("open model folder %s: %w", dir, err)
	}
	return f, nil
}

func openFolder(dir string) (_ *Folder, err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(dir, configName))
	if err != nil {
		return nil, errors.Join(err, otherForm(dir))
	}
	f := &Folder{dir: dir}
	if f.Config, err = readModel(b); err != nil {
		return nil, err
	}
	if f.files, err = safetensors.OpenFolder(dir, weightsName); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = errors.Join(err, otherForm(dir))
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.files.Close())
		}
	}()
	if f.Config.ValueHead = f.files.Has(gpu.ValueHeadTensor); !f.Config.ValueHead {
		// The file decides. Where Transformers saved a model of Weir's, config.json names a head that is not there; a
		// config.json from elsewhere names none.
		switch err := f.files.Add(dir, gpu.ValueHeadFile); {
		case err == nil:
			f.Config.ValueHead = true
		case !errors.Is(err, os.ErrNotExist):
			return nil, err
		}
	}
	f.Config = withTensors(f.Config, f.files)
	w, err := arrangeTensors(f.Config, f.files.Tensors())
	if err != nil {
		return nil, err
	}
	f.tensors = w.Tensors
	return f, nil
}

// Weights are the model's tensors in its order, read from the files when asked for: until Close.
func (f *Folder) Weights() *gpu.Weights { return &gpu.Weights{Tensors: f.tensors, Source: f.files} }

// otherForm explains how to convert a folder that holds a model in a form that is not read. It is nil where there is no sign of
// such a model.
func otherForm(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == "adapter_config.json":
			return errors.New("the folder has an adapter alone: merge it into its model and name that folder")
		case filepath.Ext(name) == ".gguf":
			return fmt.Errorf("%s is not read: take the model's safetensors", name)
		case strings.HasPrefix(name, "pytorch_model") && filepath.Ext(name) == ".bin":
			return fmt.Errorf("%s is not read: save the model anew as safetensors, which save_pretrained of Transformers does", name)
		}
	}
	return nil
}

// Close closes the files.
func (f *Folder) Close() error { return f.files.Close() }

// Tokenizer is tokenizer.json as it is, nil when there is none.
func (f *Folder) Tokenizer() ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(f.dir, tokenizerName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// Fits reports every difference between the folder's model and c that changes what is computed, wrapping gpu.ErrMismatch. A
// value head may be missing in either.
func (f *Folder) Fits(c gpu.Config) error {
	if f.Config.Transformers != nil || c.Transformers != nil {
		return fitsModule(f.Config.Transformers, c.Transformers)
	}
	var errs []error
	for _, x := range []struct {
		key        string
		have, want any
	}{
		{"vocab_size", f.Config.VocabSize, c.VocabSize},
		{"hidden_size", f.Config.HiddenSize, c.HiddenSize},
		{"intermediate_size", f.Config.IntermediateSize, c.IntermediateSize},
		{"num_hidden_layers", f.Config.NumLayers, c.NumLayers},
		{"num_attention_heads", f.Config.NumHeads, c.NumHeads},
		{"num_key_value_heads", f.Config.NumKVHeads, c.NumKVHeads},
		{"head_dim", f.Config.AttentionDim(), c.AttentionDim()},
		{"rope_theta", f.Config.RopeTheta, c.RopeTheta},
		{"rope_scaling", scalingOf(f.Config), scalingOf(c)},
		{"qkv_bias", f.Config.QKVBias, c.QKVBias},
		{"qk_norm", f.Config.QKNorm, c.QKNorm},
		{"rms_norm_eps", f.Config.RMSNormEps, c.RMSNormEps},
		{"tie_word_embeddings", f.Config.TieEmbeddings, c.TieEmbeddings},
	} {
		if x.have != x.want {
			errs = append(errs, fmt.Errorf("%w: %s: %s is %v, the model's is %v", gpu.ErrMismatch, configName, x.key, x.have, x.want))
		}
	}
	return errors.Join(errs...)
}

// scalingOf is a model's rope_scaling, comparable.
func scalingOf(c gpu.Config) any {
	if c.RopeScaling == nil {
		return nil
	}
	return *c.RopeScaling
}

// Read reads the numbers of a layout's tensors into their data. All tensors must be of the folder's model, and have room. A
// value head that the folder lacks is set to 0. Before any number is written, all are read once and checked.
func (f *Folder) Read(ctx context.Context, layout []gpu.Tensor) error {
	if err := f.Check(ctx, layout); err != nil {
		return err
	}
	for _, t := range layout {
		if t.Name == gpu.ValueHeadTensor && !f.Config.ValueHead {
			clear(t.Data)
			continue
		}
		if err := f.files.Read(ctx, t.Name, t.Data); err != nil {
			return err
		}
	}
	return nil
}

// Files are the names of the files that hold the weights.
func (f *Folder) Files() []string { return f.files.Names() }

// Check reads the numbers of a layout's tensors as far as the folder has them. It reports a number that is not finite, and a
// stored head that differs from the embeddings it is tied to.
func (f *Folder) Check(ctx context.Context, layout []gpu.Tensor) error {
	var names []string
	for _, t := range layout {
		if f.files.Has(t.Name) {
			names = append(names, t.Name)
		}
	}
	if err := f.checkTied(ctx); err != nil {
		return err
	}
	return f.files.CheckFinite(ctx, names)
}

// checkTied refuses a stored head that differs from the embeddings in a model that takes these as its head. Either the
// configuration or the head is not what the folder was trained as.
func (f *Folder) checkTied(ctx context.Context) error {
	if !f.Config.TieEmbeddings || !f.files.Has(gpu.HeadTensor) {
		return nil
	}
	same, err := f.files.Equal(ctx, gpu.HeadTensor, embeddings)
	if err == nil && !same {
		err = fmt.Errorf("%w: tensor %q differs from %q although tie_word_embeddings is true: set it to false in %s, or remove the tensor",
			gpu.ErrMismatch, gpu.HeadTensor, embeddings, configName)
	}
	return err
}

// embeddings is the name of the embedding matrix.
const embeddings = "model.embed_tokens.weight"

// requireEmpty refuses a folder that is not empty. A folder that is not there counts as empty.
func requireEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("the folder holds %s: name an empty one", entries[0].Name())
	}
	return nil
}

// WriteTokenizer writes tokenizer.json and tokenizer_config.json into a model folder.
func WriteTokenizer(dir string, c gpu.Config, tokenizerJSON []byte) error {
	config, err := tokenizerConfig(c, tokenizerJSON)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, tokenizerName), tokenizerJSON, 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, tokenizerConfigName), config, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the tokenizer into %s: %w", dir, err)
	}
	return nil
}
