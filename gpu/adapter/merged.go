package adapter

import (
	"context"
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// Over is the weights with the adapter added, as an export in dtype has them. Nothing is computed until it is read, a part at a
// time: frozen must serve until then, and is not written to. It fails, with gpu.ErrMismatch, where the adapter is of another model.
func (ad *Adapter) Over(frozen *gpu.Weights, dtype gpu.DType) (*gpu.Weights, error) {
	if err := ad.Fits(frozen.Tensors); err != nil {
		return nil, err
	}
	if dtype.Bytes() == 0 {
		return nil, fmt.Errorf("merge an adapter: type %q is not supported: want %s or %s", dtype, gpu.Float32, gpu.BFloat16)
	}
	m := &merged{frozen: frozen, tensors: map[string]gpu.Tensor{}, adapter: ad, dtype: dtype}
	out := &gpu.Weights{Tensors: make([]gpu.Tensor, len(frozen.Tensors)), Source: m}
	for i, t := range frozen.Tensors {
		m.tensors[t.Name] = t
		out.Tensors[i] = gpu.Tensor{Name: t.Name, Shape: t.Shape}
	}
	return out, nil
}

// merged is the gpu.Source of weights with an adapter added.
type merged struct {
	frozen  *gpu.Weights
	tensors map[string]gpu.Tensor
	adapter *Adapter
	dtype   gpu.DType
}

func (m *merged) StoredAs(string) gpu.DType { return m.dtype }

func (m *merged) ReadPart(ctx context.Context, name string, at int, data []float32) error {
	t, ok := m.tensors[name]
	if !ok {
		return fmt.Errorf("tensor %q is missing", name)
	}
	if t.Data == nil && m.frozen.Source != nil {
		if err := m.frozen.Source.ReadPart(ctx, name, at, data); err != nil {
			return err
		}
	} else {
		part, err := m.frozen.Part(ctx, t, at, len(data), nil)
		if err != nil {
			return err
		}
		copy(data, part)
	}
	m.adapter.addPart(name, at, data)
	roundNumbers(data, m.dtype)
	return nil
}

// Merge adds the adapter to weights that are in memory, and rounds them as an export in dtype does. It fails, with
// gpu.ErrMismatch, where the adapter is of another model: then nothing is changed.
func (ad *Adapter) Merge(w *gpu.Weights, dtype gpu.DType) error {
	if err := ad.Fits(w.Tensors); err != nil {
		return err
	}
	for _, t := range w.Tensors {
		ad.addPart(t.Name, 0, t.Data)
		roundNumbers(t.Data, dtype)
	}
	return nil
}

// roundNumbers rounds numbers to a type.
func roundNumbers(data []float32, dtype gpu.DType) {
	if dtype != gpu.BFloat16 {
		return
	}
	const piece = 1 << 12
	var half [piece]uint16
	for from := 0; from < len(data); from += piece {
		part := data[from:min(from+piece, len(data))]
		kernel.RoundBF16(half[:len(part)], part)
		kernel.WidenBF16(part, half[:len(part)])
	}
}
