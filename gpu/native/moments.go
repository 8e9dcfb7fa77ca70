package native

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// Names of the moments: a weight's with a suffix.
const (
	firstSuffix  = ".m"
	secondSuffix = ".v"
)

// moments are AdamW's moments of the trained numbers, flat as these are, and the count of steps. The zero value is an optimizer
// before its first step.
type moments struct {
	// first and second are nil until they are allocated.
	first, second []float32
	steps         int64
}

// allocateZeros makes the moments of size numbers, zeros, where there are none.
func (m *moments) allocateZeros(size int) {
	if m.first == nil {
		m.first, m.second = make([]float32, size), make([]float32, size)
	}
}

// namedTensors are the moments, named, over their own memory.
func (m *moments) namedTensors(l *layout) []gpu.Tensor {
	return append(l.namedTensors(m.first, firstSuffix), l.namedTensors(m.second, secondSuffix)...)
}

// loadFolder reads the moments of the layout's tensors from a folder. On an error before the numbers are read nothing is changed.
func (m *moments) loadFolder(ctx context.Context, f *safetensors.Folder, l *layout, steps int64) error {
	if err := l.matchMoments(f.Tensors()); err != nil {
		return err
	}
	m.allocateZeros(l.size)
	tensors := m.namedTensors(l)
	names := make([]string, len(tensors))
	var wrong []error
	for i, t := range tensors {
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
	for _, t := range tensors {
		if err := f.Read(ctx, t.Name, t.Data); err != nil {
			return err
		}
	}
	m.steps = steps
	return nil
}

// matchMoments reports every difference between moments and the model's.
func (l *layout) matchMoments(moments []gpu.Tensor) error {
	var first, second []gpu.Tensor
	var errs []error
	for _, t := range moments {
		switch {
		case strings.HasSuffix(t.Name, firstSuffix):
			first = append(first, t)
		case strings.HasSuffix(t.Name, secondSuffix):
			second = append(second, t)
		default:
			errs = append(errs, fmt.Errorf("%w: moment %q ends in neither %s nor %s", gpu.ErrMismatch, t.Name, firstSuffix, secondSuffix))
		}
	}
	_, err1 := l.matchTensors(first, firstSuffix)
	_, err2 := l.matchTensors(second, secondSuffix)
	return errors.Join(append(errs, err1, err2)...)
}

// SaveOptimizer writes AdamW's moments; before the first step they are zeros.
func (e *Engine) SaveOptimizer(ctx context.Context, dir string) (int64, error) {
	e.moments.allocateZeros(e.trained.size)
	_, err := safetensors.WriteFolder(ctx, dir, gpu.OptimizerFile, e.moments.namedTensors(e.trained), gpu.ExportOptions{ShardBytes: gpu.LargeFile})
	if err != nil {
		return 0, fmt.Errorf("save optimizer to %s: %w", dir, err)
	}
	return e.moments.steps, nil
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
	if e.lora != nil && e.lora.folded && steps > 0 {
		return ErrOtherBase
	}
	return e.moments.loadFolder(ctx, f, e.trained, steps)
}

// ResetOptimizer lets go of the moments: the next step starts with zeros.
func (e *Engine) ResetOptimizer(ctx context.Context) error {
	e.moments = moments{}
	return ctx.Err()
}
