package safetensors

import (
	"context"
	"fmt"
	"io"
	"math"
)

// Copy writes a tensor's numbers, stored as dtype. The type that the folder has them in gives the same bytes. A number that is
// finite and does not fit the type wraps ErrNotFinite.
func (f *Folder) Copy(ctx context.Context, name string, dtype DType, out io.Writer) error {
	t, err := f.findEntry(name)
	if err != nil {
		return err
	}
	if dtype == t.dtype {
		return f.Raw(ctx, name, func(_ int, b []byte) error {
			_, err := out.Write(b)
			return err
		})
	}
	if dtype.elementSize() == 0 {
		return fmt.Errorf("tensor %q: type %q is not supported: want %s", name, dtype, known)
	}
	room, encoded := make([]float32, pieceBytes), make([]byte, 0, 4*pieceBytes)
	return f.Raw(ctx, name, func(at int, b []byte) error {
		x := room[:len(b)/t.dtype.elementSize()]
		t.dtype.decodeNumbers(x, b)
		encoded = dtype.appendNumbers(encoded[:0], x)
		if i := firstOverflow(dtype, x, encoded); i >= 0 {
			return fmt.Errorf("%w as %s: entry %d is %g", ErrNotFinite, dtype, at+i, x[i])
		}
		_, err := out.Write(encoded)
		return err
	})
}

// firstOverflow is the index of the first finite number that is not finite as it is stored, -1 if there is none.
func firstOverflow(dtype DType, x []float32, b []byte) int {
	if dtype == F32 {
		return -1
	}
	var stored [1]float32
	for i, v := range x {
		if limit := float32(60000); v < limit && v > -limit {
			continue // fits every type
		}
		dtype.decodeNumbers(stored[:], b[2*i:2*i+2])
		if math.IsInf(float64(stored[0]), 0) && !math.IsInf(float64(v), 0) {
			return i
		}
	}
	return -1
}

// ParseHeader reads a file's header, without the eight bytes of its length: the tensors in the order of their numbers.
func ParseHeader(header []byte) ([]StoredTensor, error) {
	found, err := parseHeader(header)
	if err != nil {
		return nil, err
	}
	end := int64(0)
	for _, t := range found {
		end = max(end, t.end)
	}
	if err := arrangeTensors(found, end); err != nil {
		return nil, err
	}
	out := make([]StoredTensor, len(found))
	for i, t := range found {
		out[i] = StoredTensor{t.name, t.shape, t.dtype}
	}
	return out, nil
}
