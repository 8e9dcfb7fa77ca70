package hf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

const (
	configName          = "config.json"
	generationName      = "generation_config.json"
	weightsName         = "model.safetensors"
	indexName           = "model.safetensors.index.json"
	tokenizerName       = "tokenizer.json"
	tokenizerConfigName = "tokenizer_config.json"
)

// Save writes the folder dir. It replaces a folder that was saved before; it reports a folder with any other file in it, and
// leaves it alone. tokenizerJSON may be nil. The parent folder must exist. The error wraps gpu.ErrMismatch when the weights are
// not the configuration's.
func Save(dir string, c gpu.Config, w *gpu.Weights, tokenizerJSON []byte, dtype safetensors.DType) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	ordered, err := arrangeTensors(c, w.Tensors)
	if err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	files := []file{{name: weightsName, write: func(out io.Writer) error { return safetensors.Write(out, ordered, dtype) }}}
	add := func(name string, b []byte, err error) error {
		files = append(files, file{name: name, write: func(out io.Writer) error { _, err := out.Write(b); return err }})
		return err
	}
	config, cerr := encodeConfig(c, dtype)
	generation, gerr := encodeGeneration(c)
	errs := []error{add(configName, config, cerr), add(generationName, generation, gerr)}
	if tokenizerJSON != nil {
		tc, terr := tokenizerConfig(c, tokenizerJSON)
		errs = append(errs, add(tokenizerName, tokenizerJSON, nil), add(tokenizerConfigName, tc, terr))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	if err := saveFolder(filepath.Clean(dir), files); err != nil {
		return fmt.Errorf("save model to %s: %w", dir, err)
	}
	return nil
}

// file is a file to write.
type file struct {
	name  string
	write func(io.Writer) error
}

// saveFolder writes the files into a new folder beside dir, then puts it in dir's place.
func saveFolder(dir string, files []file) (err error) {
	replaces, err := isReplaceable(dir)
	if err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	temp, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+".tmp-")
	if err != nil {
		return err
	}
	// After the exchange this is the old folder.
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := writeFile(filepath.Join(temp, f.name), f.write); err != nil {
			return err
		}
	}
	if err := syncFolder(temp); err != nil {
		return err
	}
	if replaces {
		err = exchangeFolders(temp, dir)
	} else {
		err = os.Rename(temp, dir)
	}
	if err != nil {
		return err
	}
	return syncFolder(parent)
}

// isReplaceable reports whether dir exists and holds nothing but the files that Save writes.
func isReplaceable(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		switch e.Name() {
		case configName, generationName, weightsName, tokenizerName, tokenizerConfigName:
		default:
			return false, fmt.Errorf("the folder holds %s, which a save would delete: move it or save elsewhere", e.Name())
		}
	}
	return true, nil
}

func writeFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 1<<16)
	if err := write(out); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
