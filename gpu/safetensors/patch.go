package safetensors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Patch goes through the numbers of a file, a piece of a tensor at a time, and writes the pieces back of which change reports that it has
// changed them. The file keeps its header, its types and its size. A copy of the file that is a link of it changes too.
func Patch(ctx context.Context, path string, change func(tensor string, at int, x []float32) (changed bool, err error)) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	found, body, err := readHeader(io.NewSectionReader(f, 0, info.Size()), info.Size())
	if err != nil {
		return err
	}
	piece, room := make([]byte, pieceBytes), make([]float32, pieceBytes)
	for _, t := range found {
		in := io.NewSectionReader(f, body+t.begin, t.end-t.begin)
		into := func(_, n int) []float32 { return room[:n] }
		err := t.readNumbers(in, piece, into, func(at int, x []float32) error {
			changed, err := change(t.name, at, x)
			if err != nil || !changed {
				return errors.Join(err, ctx.Err())
			}
			_, err = f.WriteAt(t.dtype.appendNumbers(nil, x), body+t.begin+int64(at*t.dtype.elementSize()))
			return errors.Join(err, ctx.Err())
		})
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.name, err)
		}
	}
	return f.Sync()
}
