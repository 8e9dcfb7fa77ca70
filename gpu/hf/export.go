package hf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// Export writes a folder as gpu.Engine's Export does: config.json, generation_config.json, the weights, and the value head in a
// file of its own. The tensors are the model's, in the order of gpu.Weights; their data is not copied.
func Export(ctx context.Context, dir string, c gpu.Config, tensors []gpu.Tensor, o gpu.ExportOptions) (gpu.Written, error) {
	files, err := exportFolder(ctx, dir, c, tensors, o)
	if err != nil {
		return nil, fmt.Errorf("export model to %s: %w", dir, err)
	}
	return files, nil
}

func exportFolder(ctx context.Context, dir string, c gpu.Config, tensors []gpu.Tensor, o gpu.ExportOptions) (gpu.Written, error) {
	if err := requireEmpty(dir); err != nil {
		return nil, err
	}
	policy, head := splitValueHead(tensors)
	files, err := safetensors.WriteFolder(ctx, dir, weightsName, policy, o)
	if err != nil {
		return nil, err
	}
	if head != nil {
		more, err := safetensors.WriteFolder(ctx, dir, gpu.ValueHeadFile, head, gpu.ExportOptions{DType: o.DType})
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	more, err := writeConfig(dir, c, o)
	return append(files, more...), err
}

// splitValueHead separates the value head, which has a file of its own, from the other tensors.
func splitValueHead(tensors []gpu.Tensor) (policy, head []gpu.Tensor) {
	if n := len(tensors); n > 0 && tensors[n-1].Name == gpu.ValueHeadTensor {
		return tensors[:n-1], tensors[n-1:]
	}
	return tensors, nil
}

// writeConfig writes config.json and generation_config.json.
func writeConfig(dir string, c gpu.Config, o gpu.ExportOptions) ([]gpu.File, error) {
	dtype, err := safetensors.Of(o.DType)
	if err != nil {
		return nil, err
	}
	config, cerr := encodeConfig(c, dtype)
	generation, gerr := encodeGeneration(c)
	if err := errors.Join(cerr, gerr); err != nil {
		return nil, err
	}
	var files []gpu.File
	for _, x := range []struct {
		name string
		data []byte
	}{{configName, config}, {generationName, generation}} {
		if err := os.WriteFile(filepath.Join(dir, x.name), x.data, 0o644); err != nil {
			return nil, err
		}
		files = append(files, gpu.File{Name: x.name, Size: int64(len(x.data))})
	}
	return files, nil
}

// Exporting is an Export whose numbers the caller writes: an engine that has them in another process or on a device.
type Exporting struct {
	// Files are to be written into the folder: each its head, and then the numbers of its tensors in the type of the options.
	Files []safetensors.FilePlan

	dir          string
	config       gpu.Config
	options      gpu.ExportOptions
	policy, head *safetensors.FolderPlan
}

// BeginExport lays an Export out and makes the folder. The folder is then the same, byte for byte, as Export's, once Files and
// Finish are written.
func BeginExport(dir string, c gpu.Config, o gpu.ExportOptions) (*Exporting, error) {
	e, err := beginExport(dir, c, o)
	if err != nil {
		return nil, fmt.Errorf("export model to %s: %w", dir, err)
	}
	return e, nil
}

func beginExport(dir string, c gpu.Config, o gpu.ExportOptions) (*Exporting, error) {
	if err := requireEmpty(dir); err != nil {
		return nil, err
	}
	e := &Exporting{dir: dir, config: c, options: o, head: &safetensors.FolderPlan{}}
	policy, head := splitValueHead(c.Layout())
	var err error
	if e.policy, err = safetensors.Plan(weightsName, policy, o); err != nil {
		return nil, err
	}
	if head != nil {
		if e.head, err = safetensors.Plan(gpu.ValueHeadFile, head, gpu.ExportOptions{DType: o.DType}); err != nil {
			return nil, err
		}
	}
	e.Files = append(append(e.Files, e.policy.Files...), e.head.Files...)
	return e, os.MkdirAll(dir, 0o755)
}

// Finish writes the files that hold no numbers, and lists all files in the order of Export's.
func (e *Exporting) Finish() (gpu.Written, error) {
	files, err := e.finishExport()
	if err != nil {
		return nil, fmt.Errorf("export model to %s: %w", e.dir, err)
	}
	return files, nil
}

func (e *Exporting) finishExport() (gpu.Written, error) {
	files, err := e.policy.Written(e.dir, weightsName)
	if err != nil {
		return nil, err
	}
	head, err := e.head.Written(e.dir, gpu.ValueHeadFile)
	if err != nil {
		return nil, err
	}
	more, err := writeConfig(e.dir, e.config, e.options)
	return append(append(files, head...), more...), err
}
