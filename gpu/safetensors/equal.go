package safetensors

import (
	"bytes"
	"context"
	"errors"
	"slices"
)

// errDiffers ends a comparison.
var errDiffers = errors.New("it differs")

// Equal reports whether two tensors have the same type, shape and numbers, bit for bit.
func (f *Folder) Equal(ctx context.Context, a, b string) (bool, error) {
	one, err := f.findEntry(a)
	if err != nil {
		return false, err
	}
	other, err := f.findEntry(b)
	if err != nil {
		return false, err
	}
	if one.dtype != other.dtype || !slices.Equal(one.shape, other.shape) {
		return false, nil
	}
	room := make([]byte, pieceBytes)
	o := f.files[f.at[b].file]
	err = f.Raw(ctx, a, func(at int, piece []byte) error {
		if _, err := o.ReadAt(room[:len(piece)], o.body+other.begin+int64(at*one.dtype.elementSize())); err != nil {
			return err
		}
		if !bytes.Equal(room[:len(piece)], piece) {
			return errDiffers
		}
		return nil
	})
	if errors.Is(err, errDiffers) {
		return false, nil
	}
	return err == nil, err
}
