package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// Model is a loaded folder.
type Model struct {
	Config gpu.Config
	// Weights in the order of gpu.Weights, fitting Config.
	Weights *gpu.Weights
	// Tokenizer is tokenizer.json as it was, nil when there is none.
	Tokenizer []byte
}

// Load reads a folder in Hugging Face's form. Errors name the file; those of weights that do not fit the
// configuration wrap gpu.ErrMismatch, those of broken weight files safetensors.ErrMalformed.
func Load(dir string) (*Model, error) {
	m, err := load(dir)
	if err != nil {
		return nil, fmt.Errorf("load model from %s: %w", dir, err)
	}
	return m, nil
}

func load(dir string) (*Model, error) {
	b, err := os.ReadFile(filepath.Join(dir, configName))
	if err != nil {
		return nil, err
	}
	m := &Model{}
	if m.Config, err = decodeConfig(b); err != nil {
		return nil, err
	}
	tensors, err := loadTensors(dir)
	if err != nil {
		return nil, err
	}
	if m.Weights, err = arrange(m.Config, tensors); err != nil {
		return nil, err
	}
	m.Tokenizer, err = os.ReadFile(filepath.Join(dir, tokenizerName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return m, nil
}

// loadTensors reads the one weight file, or those that the index names.
func loadTensors(dir string) ([]gpu.Tensor, error) {
	index, err := os.ReadFile(filepath.Join(dir, indexName))
	if errors.Is(err, os.ErrNotExist) {
		return loadFile(dir, weightsName)
	}
	if err != nil {
		return nil, err
	}
	var parsed struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(index, &parsed); err != nil {
		return nil, fmt.Errorf("parse %s: %w", indexName, err)
	}
	if len(parsed.WeightMap) == 0 {
		return nil, fmt.Errorf("%s: weight_map is empty", indexName)
	}
	files := map[string]bool{}
	for _, name := range parsed.WeightMap {
		files[name] = true
	}
	var tensors []gpu.Tensor
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !filepath.IsLocal(name) || filepath.Base(name) != name {
			return nil, fmt.Errorf("%s: %q is not the name of a file in the folder", indexName, name)
		}
		part, err := loadFile(dir, name)
		if err != nil {
			return nil, err
		}
		for _, t := range part {
			if parsed.WeightMap[t.Name] != name {
				return nil, fmt.Errorf("%s: tensor %q is not where %s says: %q", name, t.Name, indexName, parsed.WeightMap[t.Name])
			}
			delete(parsed.WeightMap, t.Name)
		}
		tensors = append(tensors, part...)
	}
	for _, name := range slices.Sorted(maps.Keys(parsed.WeightMap)) {
		return nil, fmt.Errorf("%s: tensor %q is missing, which %s says is there", parsed.WeightMap[name], name, indexName)
	}
	return tensors, nil
}

func loadFile(dir, name string) ([]gpu.Tensor, error) {
	w, err := safetensors.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return w.Tensors, nil
}
