package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/weir-rl/weir/gpu"
)

// ErrMalformed is wrapped by every error of Decode.
var ErrMalformed = errors.New("malformed safetensors")

// maxHeader is the format's own bound on the header, in bytes.
const maxHeader = 100_000_000

// lfsPrefix begins the text that Git LFS leaves in a file's place.
const lfsPrefix = "version "

func malformedError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Decode reads a file's bytes; BF16 numbers become float32. Tensors come in the order of their numbers. The
// numbers must follow one another without a gap or an overlap and end with the file. Errors name the tensor
// and the fault and wrap ErrMalformed. The result does not refer to data.
func Decode(data []byte) (*gpu.Weights, error) { return Read(bytes.NewReader(data), int64(len(data))) }

// ReadFile is Decode of a file, without a copy of its bytes.
func ReadFile(path string) (w *gpu.Weights, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return Read(f, info.Size())
}

// Read is Decode of the next size bytes of a reader, a piece at a time. An error of the reader is returned as it is.
func Read(in io.Reader, size int64) (*gpu.Weights, error) {
	found, _, err := readHeader(in, size)
	if err != nil {
		return nil, err
	}
	w := &gpu.Weights{Tensors: make([]gpu.Tensor, 0, len(found))}
	piece := make([]byte, min(size, pieceBytes))
	for _, t := range found {
		x := make([]float32, t.elementCount())
		if err := t.readNumbers(in, piece, func(at, n int) []float32 { return x[at : at+n] }, nil); err != nil {
			return nil, err
		}
		w.Tensors = append(w.Tensors, gpu.Tensor{Name: t.name, Shape: t.shape, Data: x})
	}
	return w, nil
}

// readHeader reads the header of a file of size bytes: its tensors, in the order of their numbers, and the place at which the
// numbers begin.
func readHeader(in io.Reader, size int64) (found []located, body int64, err error) {
	if size < 8 {
		return nil, 0, malformedError("%d bytes: cut short in the header's length", size)
	}
	length := make([]byte, 8)
	if _, err := io.ReadFull(in, length); err != nil {
		return nil, 0, err
	}
	n := binary.LittleEndian.Uint64(length)
	if string(length) == lfsPrefix {
		return nil, 0, malformedError("it is a pointer of Git LFS, not the file: run git lfs pull in the folder")
	}
	if n > maxHeader {
		return nil, 0, malformedError("the header claims %d bytes: at most %d", n, maxHeader)
	}
	if n > uint64(size-8) {
		return nil, 0, malformedError("the header claims %d bytes, the file has %d after its length: cut short", n, size-8)
	}
	head := make([]byte, n)
	if _, err := io.ReadFull(in, head); err != nil {
		return nil, 0, err
	}
	if found, err = parseHeader(head); err != nil {
		return nil, 0, err
	}
	body = 8 + int64(n)
	return found, body, arrangeTensors(found, size-body)
}

// pieceBytes is how much of a file is held as bytes at once.
const pieceBytes = 1 << 18

// elementCount is how many numbers a tensor has.
func (l located) elementCount() int { return int((l.end - l.begin) / int64(l.dtype.elementSize())) }

// readNumbers decodes a tensor's numbers, which in is at, a piece at a time: into(at, n) is where n numbers from the at-th on go, and
// then, unless nil, is called when they are there.
func (l located) readNumbers(in io.Reader, piece []byte, into func(at, n int) []float32, then func(at int, x []float32) error) error {
	for at, n := 0, l.elementCount(); at < n; {
		k := min(n-at, len(piece)/l.dtype.elementSize())
		b := piece[:k*l.dtype.elementSize()]
		if _, err := io.ReadFull(in, b); err != nil {
			return err
		}
		x := into(at, k)
		l.dtype.decodeNumbers(x, b)
		if then != nil {
			if err := then(at, x); err != nil {
				return err
			}
		}
		at += k
	}
	return nil
}

// arrangeTensors sorts the tensors by their numbers, which must follow one another and fill the body.
func arrangeTensors(found []located, body int64) error {
	slices.SortStableFunc(found, func(a, b located) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	at := int64(0)
	for _, t := range found {
		switch {
		case t.end > body:
			return malformedError("tensor %q: its numbers end at byte %d, the file has %d: cut short", t.name, t.end, body)
		case t.begin < at:
			return malformedError("tensor %q: its numbers begin at byte %d, inside those before it, which end at %d", t.name, t.begin, at)
		case t.begin > at:
			return malformedError("tensor %q: its numbers begin at byte %d, %d after those before it", t.name, t.begin, t.begin-at)
		}
		at = t.end
	}
	if at != body {
		return malformedError("%d bytes follow the last tensor's numbers", body-at)
	}
	return nil
}

// located is a tensor of the header, its shape checked against its offsets.
type located struct {
	name       string
	dtype      DType
	shape      []int
	begin, end int64
}

func parseHeader(head []byte) ([]located, error) {
	dec := json.NewDecoder(bytes.NewReader(head))
	dec.DisallowUnknownFields()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, malformedError("the header is not a JSON object")
	}
	var found []located
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, malformedError("the header is not JSON: %v", err)
		}
		if seen[name] {
			return nil, malformedError("tensor %q: the name is used twice", name)
		}
		seen[name] = true
		if name == metadataKey {
			var text map[string]string
			if err := dec.Decode(&text); err != nil {
				return nil, malformedError("%s: %v", metadataKey, err)
			}
			continue
		}
		if name == "" {
			return nil, malformedError("a tensor has no name")
		}
		var e entry
		if err := dec.Decode(&e); err != nil {
			return nil, malformedError("tensor %q: %v", name, err)
		}
		l, err := e.locateTensor(name)
		if err != nil {
			return nil, err
		}
		found = append(found, l)
	}
	if _, err := dec.Token(); err != nil {
		return nil, malformedError("the header is not JSON: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, malformedError("the header goes on after its JSON object")
	}
	return found, nil
}

func (e entry) locateTensor(name string) (located, error) {
	l := located{name: name, dtype: DType(e.DType), shape: make([]int, len(e.Shape))}
	size := int64(l.dtype.elementSize())
	switch {
	case size == 0:
		return l, malformedError("tensor %q: type %q is not supported: want %s; convert the model to one of them", name, e.DType, known)
	case e.Shape == nil:
		return l, malformedError("tensor %q: it has no shape", name)
	case e.Offsets == nil:
		return l, malformedError("tensor %q: it has no data_offsets", name)
	}
	l.begin, l.end = e.Offsets[0], e.Offsets[1]
	if l.begin < 0 || l.end < l.begin {
		return l, malformedError("tensor %q: offsets [%d, %d] are not a range", name, l.begin, l.end)
	}
	for i, s := range e.Shape {
		if s < 0 || s > math.MaxInt {
			return l, malformedError("tensor %q: shape %v is out of range", name, e.Shape)
		}
		if s > 0 && size > math.MaxInt64/s {
			return l, malformedError("tensor %q: shape %v is out of range", name, e.Shape)
		}
		size *= s
		l.shape[i] = int(s)
	}
	if size != l.end-l.begin {
		return l, malformedError("tensor %q: shape %v takes %d bytes as %s, its offsets hold %d", name, e.Shape, size, l.dtype, l.end-l.begin)
	}
	return l, nil
}
