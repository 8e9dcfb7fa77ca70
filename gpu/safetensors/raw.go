package safetensors

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"

	"github.com/weir-rl/weir/gpu"
)

// Raw gives a tensor's stored bytes, a piece after the other, each with the index of its first number. They are valid during the
// call and must not be written to. An error of each ends it.
func (f *Folder) Raw(ctx context.Context, name string, each func(at int, b []byte) error) error {
	p, ok := f.at[name]
	if !ok {
		return fmt.Errorf("tensor %q is missing", name)
	}
	o := f.files[p.file]
	t := o.list[p.tensor]
	err := guardMapped(func() error { return o.rawBytes(ctx, t, each) })
	letGo(o.data, o.body+t.begin, o.body+t.end)
	if err != nil {
		return fmt.Errorf("%s: tensor %q: %w", o.name, name, err)
	}
	return nil
}

// StoredAs is DType in config.json's words, "" for a type that an engine does not write.
func (f *Folder) StoredAs(name string) gpu.DType {
	switch f.DType(name) {
	case F32:
		return gpu.Float32
	case BF16:
		return gpu.BFloat16
	}
	return ""
}

// ReadPart reads a tensor's numbers from the at-th on into data.
func (f *Folder) ReadPart(ctx context.Context, name string, at int, data []float32) error {
	p, ok := f.at[name]
	if !ok {
		return fmt.Errorf("tensor %q is missing", name)
	}
	o := f.files[p.file]
	t := o.list[p.tensor]
	if n := t.elementCount(); at < 0 || at+len(data) > n {
		return fmt.Errorf("%s: tensor %q has %d numbers: there are no %d from %d on", o.name, name, n, len(data), at)
	}
	size := int64(t.dtype.elementSize())
	t.begin += int64(at) * size
	t.end = t.begin + int64(len(data))*size
	err := guardMapped(func() error {
		return o.rawBytes(ctx, t, func(at int, b []byte) error {
			t.dtype.decodeNumbers(data[at:at+len(b)/int(size)], b)
			return nil
		})
	})
	letGo(o.data, o.body+t.begin, o.body+t.end)
	if err != nil {
		return fmt.Errorf("%s: tensor %q: %w", o.name, name, err)
	}
	return nil
}

func (o *openFile) rawBytes(ctx context.Context, t located, each func(at int, b []byte) error) error {
	var room []byte
	if o.data == nil {
		room = make([]byte, min(pieceBytes, t.end-t.begin))
	}
	for at := t.begin; at < t.end; at += pieceBytes {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(pieceBytes, t.end-at)
		b := room
		if o.data != nil {
			b = o.data[o.body+at : o.body+at+n : o.body+at+n]
		} else if _, err := o.ReadAt(b[:n], o.body+at); err != nil {
			return fmt.Errorf("%w: %w", errChanged, err)
		}
		if err := each(int(at-t.begin)/t.dtype.elementSize(), b[:n]); err != nil {
			return err
		}
	}
	return nil
}

// errChanged is returned where bytes that were there when the file was opened cannot be read.
var errChanged = errors.New("the file cannot be read any more: it was cut short while it was in use, or its disk fails")

// guardMapped runs a function that reads mapped memory: where the file has lost that part meanwhile, it is an error, and not the end of
// the process.
func guardMapped(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, fault := r.(interface{ Addr() uintptr }); !fault {
				panic(r)
			}
			err = errChanged
		}
	}()
	return read()
}

// ErrNotFinite is returned by CheckFinite for a number that is infinite or none.
var ErrNotFinite = errors.New("a number is not finite")

// CheckFinite reads the named tensors and reports the first number that is not finite.
func (f *Folder) CheckFinite(ctx context.Context, names []string) error {
	room := make([]float32, pieceBytes)
	for _, name := range names {
		t, err := f.findEntry(name)
		if err != nil {
			return err
		}
		err = f.Raw(ctx, name, func(at int, b []byte) error {
			x := room[:len(b)/t.dtype.elementSize()]
			t.dtype.decodeNumbers(x, b)
			for i, v := range x {
				if math.Float32bits(v)&0x7f800000 == 0x7f800000 {
					return fmt.Errorf("%w: entry %d is %g", ErrNotFinite, at+i, v)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
