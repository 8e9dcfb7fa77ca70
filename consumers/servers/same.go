package servers

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
)

// checkSameModel refuses a server whose model folder can be read here and is another model's.
func checkSameModel(path string, want gpu.Config) error {
	if !filepath.IsAbs(path) {
		return nil
	}
	have, err := hf.ReadConfig(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it lies on another machine, or is gone: the probe and the load find out
	}
	if err != nil {
		return &SettingError{Setting: fmt.Sprintf("it serves another model, %s, which cannot be read: start it with the run's model", path), Err: err}
	}
	var errs []error
	for _, x := range []struct {
		key        string
		have, want int
	}{
		{"vocab_size", have.VocabSize, want.VocabSize},
		{"hidden_size", have.HiddenSize, want.HiddenSize},
		{"num_hidden_layers", have.NumLayers, want.NumLayers},
		{"num_attention_heads", have.NumHeads, want.NumHeads},
	} {
		if x.have != x.want {
			errs = append(errs, fmt.Errorf("%s is %d, the run's model has %d", x.key, x.have, x.want))
		}
	}
	if errs != nil {
		return &SettingError{Setting: fmt.Sprintf("it serves another model, %s: start it with the run's model", path), Err: errors.Join(errs...)}
	}
	return nil
}
