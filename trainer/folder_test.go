package trainer

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// folder keeps models as one safetensors file.
type folder struct{ crash func(point string) error }

func (f folder) Save(dir string, c gpu.Config, w *gpu.Weights, _ []byte) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	data, err := safetensors.Encode(w, safetensors.F32)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), data, 0o644); err != nil {
		return err
	}
	model, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), model, 0o644); err != nil {
		return err
	}
	if f.crash != nil {
		return f.crash("within save")
	}
	return nil
}

func (folder) Load(dir string) (gpu.Config, *gpu.Weights, []byte, error) {
	data, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return gpu.Config{}, nil, nil, err
	}
	w, err := safetensors.Decode(data)
	if err != nil {
		return gpu.Config{}, nil, nil, err
	}
	if data, err = os.ReadFile(filepath.Join(dir, "config.json")); err != nil {
		return gpu.Config{}, nil, nil, err
	}
	var c gpu.Config
	return c, w, nil, json.Unmarshal(data, &c)
}
