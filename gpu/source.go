package gpu

import (
	"context"
	"fmt"
)

// Source has the numbers of weights that are not in memory. safetensors.Folder is one.
type Source interface {
	// Read fills data, which has as many numbers as the tensor, in float32. Several goroutines may call it.
	Read(ctx context.Context, name string, data []float32) error
}

// Numbers are those of a tensor of w: its data, or what is read from the source into *room, which is made larger where it is too
// small and may be used again once the numbers are done with. They must not be written to where they are the tensor's data.
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
	if err := w.Source.Read(ctx, t.Name, data); err != nil {
		return nil, err
	}
	return data, nil
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
