package native

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// Names of the moments: a weight's with a suffix.
const (
	firstSuffix  = ".m"
	secondSuffix = ".v"
)

// Export writes the folder before it returns, straight from the weights: no copy is made.
func (e *Engine) Export(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	e.begin()
	if e.low != nil {
		return e.exportAdapted(ctx, dir, o)
	}
	return hf.Export(ctx, dir, e.cfg, e.shared(e.data, ""), o)
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
	if e.low != nil {
		if done, err := e.importAdapter(ctx, dir); done || err != nil {
			return err
		}
	}
	e.stale, e.kept = true, false
	clear(e.grad)
	if err := f.Read(ctx, e.base()); err != nil {
		return fmt.Errorf("import %s: %w", dir, err)
	}
	e.draw = nil
	if e.low != nil {
		e.low.rebase(e.seed)
	}
	return nil
}

// base are the model's tensors, the value head's numbers being those in use.
func (e *Engine) base() []gpu.Tensor {
	out := e.shared(e.data, "")
	if last := len(out) - 1; e.low != nil && e.cfg.ValueHead {
		out[last].Data = e.low.value
	}
	return out
}

// SaveOptimizer writes AdamW's moments; before the first step they are zeros.
func (e *Engine) SaveOptimizer(ctx context.Context, dir string) (int64, error) {
	e.needMoments()
	_, err := safetensors.WriteFolder(ctx, dir, gpu.OptimizerFile, e.moments(), gpu.ExportOptions{ShardBytes: gpu.LargeFile})
	if err != nil {
		return 0, fmt.Errorf("save optimizer to %s: %w", dir, err)
	}
	return e.steps, nil
}

// LoadOptimizer replaces AdamW's moments and count of steps.
func (e *Engine) LoadOptimizer(ctx context.Context, dir string, steps int64) error {
	if err := e.loadOptimizer(ctx, dir, steps); err != nil {
		return fmt.Errorf("load optimizer from %s: %w", dir, err)
	}
	return nil
}

func (e *Engine) loadOptimizer(ctx context.Context, dir string, steps int64) error {
	if steps < 0 {
		return fmt.Errorf("steps %d: must not be negative", steps)
	}
	f, err := safetensors.OpenFolder(dir, gpu.OptimizerFile)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only
	if e.low != nil && e.low.folded && steps > 0 {
		return ErrOtherBase
	}
	if err := e.trained.matchMoments(f.Tensors()); err != nil {
		return err
	}
	e.needMoments()
	moments := e.moments()
	names := make([]string, len(moments))
	var wrong []error
	for i, t := range moments {
		names[i] = t.Name
		if d := f.DType(t.Name); d != safetensors.F32 {
			wrong = append(wrong, fmt.Errorf("%w: %s is stored as %s: moments are %s", gpu.ErrMismatch, t.Name, d, safetensors.F32))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	if err := f.CheckFinite(ctx, names); err != nil {
		return err
	}
	for _, t := range moments {
		if err := f.Read(ctx, t.Name, t.Data); err != nil {
			return err
		}
	}
	e.steps = steps
	return nil
}

// ResetOptimizer lets go of the moments: the next step starts with zeros.
func (e *Engine) ResetOptimizer(ctx context.Context) error {
	e.first, e.second, e.steps = nil, nil, 0
	return ctx.Err()
}

// moments are AdamW's, named, over the engine's own memory.
func (e *Engine) moments() []gpu.Tensor {
	return append(e.trained.shared(e.first, firstSuffix), e.trained.shared(e.second, secondSuffix)...)
}

// shared are a flat array's tensors, named, over the same memory.
func (l *layout) shared(data []float32, suffix string) []gpu.Tensor {
	out := make([]gpu.Tensor, len(l.tensors))
	for i, x := range l.parts(data) {
		out[i] = gpu.Tensor{Name: l.tensors[i].name + suffix, Shape: l.tensors[i].shape, Data: x}
	}
	return out
}
