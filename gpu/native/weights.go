package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu"
)

// Weights copies the weights out.
func (e *Engine) Weights(ctx context.Context) (*gpu.Weights, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.begin()
	w := &gpu.Weights{Tensors: e.base()}
	for i, t := range w.Tensors {
		w.Tensors[i].Shape, w.Tensors[i].Data = slices.Clone(t.Shape), e.merged(t, nil)
	}
	return w, nil
}

// SetWeights replaces the weights. Tensors may come in any order; names and shapes must match exactly, else
// nothing is changed and the error, an ErrMismatch, names every tensor at fault. Optimizer moments stay.
func (e *Engine) SetWeights(ctx context.Context, w *gpu.Weights) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	order, err := e.match(w.Tensors, "")
	if err == nil {
		err = e.whole(w.Tensors)
	}
	if err != nil {
		return fmt.Errorf("set weights: %w", err)
	}
	e.fill(e.data, w.Tensors, order)
	e.draw = nil
	if e.low != nil {
		e.low.rebase(e.seed)
		e.low.folded = false
		copy(e.low.value, w.Tensors[order[len(order)-1]].Data)
	}
	e.stale, e.kept = true, false
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
	_, err1 := l.match(first, firstSuffix)
	_, err2 := l.match(second, secondSuffix)
	return errors.Join(append(errs, err1, err2)...)
}

// whole reports tensors whose data is not their shape's.
func (l *layout) whole(ts []gpu.Tensor) error {
	var errs []error
	for _, t := range ts {
		if n := t.Elements(); len(t.Data) != n {
			errs = append(errs, fmt.Errorf("%w: %s of shape %v has %d elements, want %d", gpu.ErrMismatch, t.Name, t.Shape, len(t.Data), n))
		}
	}
	return errors.Join(errs...)
}

// tensorsOf copies a flat array out as named tensors.
func (l *layout) tensorsOf(data []float32, suffix string) []gpu.Tensor {
	out := make([]gpu.Tensor, len(l.tensors))
	for i, t := range l.tensors {
		out[i] = gpu.Tensor{
			Name: t.name + suffix, Shape: slices.Clone(t.shape), Data: slices.Clone(data[t.off : t.off+t.n]),
		}
	}
	return out
}

// match finds, for each of the layout's tensors, its index in ts, and reports every difference.
func (l *layout) match(ts []gpu.Tensor, suffix string) ([]int, error) {
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

// fill copies tensors matched by match to a flat array.
func (l *layout) fill(data []float32, ts []gpu.Tensor, order []int) {
	for i, t := range l.tensors {
		copy(data[t.off:t.off+t.n], ts[order[i]].Data)
	}
}
