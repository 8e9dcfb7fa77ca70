package gpu

import (
	"context"
	"fmt"
)

// Source has the numbers of weights that are not in memory. safetensors.Folder is a Source.
type Source interface {
	// ReadPart fills data with a tensor's numbers from the at-th on, in float32. Several goroutines may call it.
	ReadPart(ctx context.Context, name string, at int, data []float32) error
	// StoredAs is the type in which a tensor's numbers are kept; "" for a type that exports do not have.
	StoredAs(name string) DType
}

// Numbers are the numbers of a tensor of w: its data, or numbers read from the source into *room. *room is made larger where it
// is too small, and may be used again once the numbers are no longer used. They must not be written to where they are the
// tensor's data.
func (w *Weights) Numbers(ctx context.Context, t Tensor, room *[]float32) ([]float32, error) {
	n := t.Elements()
	if t.Data != nil || w.Source == nil {
		if len(t.Data) != n {
			return nil, fmt.Errorf("%w: %s of shape %v has %d elements, want %d", ErrMismatch, t.Name, t.Shape, len(t.Data), n)
		}
		return t.Data, nil
	}
	if cap(*room) < n {
		*room = make([]float32, n)
	}
	data := (*room)[:n]
	if err := w.Source.ReadPart(ctx, t.Name, 0, data); err != nil {
		return nil, err
	}
	return data, nil
}

// Part is Numbers of n numbers from the at-th on.
func (w *Weights) Part(ctx context.Context, t Tensor, at, n int, room *[]float32) ([]float32, error) {
	if at < 0 || n < 0 || at+n > t.Elements() {
		return nil, fmt.Errorf("%w: %s of shape %v has no %d numbers from %d on", ErrMismatch, t.Name, t.Shape, n, at)
	}
	if t.Data != nil || w.Source == nil {
		all, err := w.Numbers(ctx, t, room)
		if err != nil {
			return nil, err
		}
		return all[at : at+n], nil
	}
	if cap(*room) < n {
		*room = make([]float32, n)
	}
	data := (*room)[:n]
	return data, w.Source.ReadPart(ctx, t.Name, at, data)
}

// Resident is w with every tensor's numbers in memory; w itself where they are there already.
func (w *Weights) Resident(ctx context.Context) (*Weights, error) {
	if w.Source == nil {
		return w, nil
	}
	out := &Weights{Tensors: make([]Tensor, len(w.Tensors))}
	for i, t := range w.Tensors {
		var own []float32
		data, err := w.Numbers(ctx, t, &own)
		if err != nil {
			return nil, err
		}
		t.Data = data
		out.Tensors[i] = t
	}
	return out, nil
}
