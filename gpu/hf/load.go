package hf

import (
	"context"
	"fmt"

	"github.com/weir-rl/weir/gpu"
)

// Model is a loaded folder.
type Model struct {
	Config gpu.Config
	// Weights in the order of gpu.Weights, fitting Config.
	Weights *gpu.Weights
	// Tokenizer is tokenizer.json as it was, nil when there is none.
	Tokenizer []byte
}

// Load reads a whole folder into memory. Errors are the errors of [Open], and name the file.
func Load(dir string) (*Model, error) {
	m, err := loadModel(dir)
	if err != nil {
		return nil, fmt.Errorf("load model from %s: %w", dir, err)
	}
	return m, nil
}

func loadModel(dir string) (*Model, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	if err := f.checkTied(context.Background()); err != nil {
		return nil, err
	}
	m := &Model{Config: f.Config, Weights: &gpu.Weights{Tensors: f.Config.Layout()}}
	for i := range m.Weights.Tensors {
		t := &m.Weights.Tensors[i]
		t.Data = make([]float32, t.Elements())
		if err := f.files.Read(context.Background(), t.Name, t.Data); err != nil {
			return nil, err
		}
	}
	m.Tokenizer, err = f.Tokenizer()
	return m, err
}
