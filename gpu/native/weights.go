package native

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/gpu"
)

// Weights returns a copy of the weights.
func (e *Engine) Weights(ctx context.Context) (*gpu.Weights, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.ensureWeights()
	w := &gpu.Weights{Tensors: e.modelTensors()}
	for i, t := range w.Tensors {
		w.Tensors[i].Shape, w.Tensors[i].Data = slices.Clone(t.Shape), e.lora.mergeTensor(e.pool, t, nil)
	}
	return w, nil
}

// checkDataSizes reports tensors whose data does not fit their shape.
func (l *layout) checkDataSizes(ts []gpu.Tensor) error {
	var errs []error
	for _, t := range ts {
		if n := t.Elements(); len(t.Data) != n {
			errs = append(errs, fmt.Errorf("%w: %s of shape %v has %d elements, want %d", gpu.ErrMismatch, t.Name, t.Shape, len(t.Data), n))
		}
	}
	return errors.Join(errs...)
}

// matchTensors finds, for each of the layout's tensors, its index in ts, and reports every difference.
func (l *layout) matchTensors(ts []gpu.Tensor, suffix string) ([]int, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{gpu.ErrMismatch}, args...)...))
	}
	byName := make(map[string]int, len(ts))
	for i, t := range ts {
		if _, twice := byName[t.Name]; twice {
			bad("%s is given twice", t.Name)
		}
		byName[t.Name] = i
	}
	order := make([]int, len(l.tensors))
	for i, want := range l.tensors {
		j, ok := byName[want.name+suffix]
		if !ok {
			bad("%s %v is missing", want.name+suffix, want.shape)
			continue
		}
		delete(byName, want.name+suffix)
		got := ts[j]
		if !slices.Equal(got.Shape, want.shape) {
			bad("%s has shape %v, the model's is %v", got.Name, got.Shape, want.shape)
		}
		order[i] = j
	}
	for i, t := range ts {
		if j, left := byName[t.Name]; left && i == j {
			bad("%s %v is not in the model", t.Name, t.Shape)
		}
	}
	return order, errors.Join(errs...)
}
