package native

import (
	"context"
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
)

// Export writes the folder before it returns, straight from the weights: no copy is made.
func (e *Engine) Export(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	e.ensureWeights()
	if e.lora != nil {
		return e.exportAdapted(ctx, dir, o)
	}
	return hf.Export(ctx, dir, e.cfg, e.namedTensors(e.data, ""), o)
}

// Import replaces the weights by a folder's.
func (e *Engine) Import(ctx context.Context, dir string) error {
	f, err := hf.Open(dir)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	if err := f.Fits(e.cfg); err != nil {
		return fmt.Errorf("import %s: %w", dir, err)
	}
	if e.lora != nil {
		if done, err := e.importAdapters(ctx, dir); done || err != nil {
			return err
		}
	}
	e.stale, e.kept = true, false
	clear(e.grad)
	if err := f.Read(ctx, e.modelTensors()); err != nil {
		return fmt.Errorf("import %s: %w", dir, err)
	}
	e.initWeights = nil
	if e.lora != nil {
		e.lora.redrawMatrices()
	}
	return nil
}

// modelTensors are the model's tensors, with the numbers of the value head in use.
func (e *Engine) modelTensors() []gpu.Tensor {
	out := e.namedTensors(e.data, "")
	if last := len(out) - 1; e.lora != nil && e.cfg.ValueHead {
		out[last].Data = e.lora.value
	}
	return out
}

// namedTensors are a flat array's tensors, named, over the same memory.
func (l *layout) namedTensors(data []float32, suffix string) []gpu.Tensor {
	out := make([]gpu.Tensor, len(l.tensors))
	for i, x := range l.splitArray(data) {
		out[i] = gpu.Tensor{Name: l.tensors[i].name + suffix, Shape: l.tensors[i].shape, Data: x}
	}
	return out
}
