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
	"slices"

	"github.com/weir-rl/weir/gpu"
)

// ErrMalformed is wrapped by every error of Decode.
var ErrMalformed = errors.New("malformed safetensors")

// maxHeader is the format's own bound on the header, in bytes.
const maxHeader = 100_000_000

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Decode reads a file's bytes; BF16 numbers become float32. Tensors come in the order of their numbers. The
// numbers must follow one another without a gap or an overlap and end with the file. Errors name the tensor
// and the fault and wrap ErrMalformed. The result does not refer to data.
func Decode(data []byte) (*gpu.Weights, error) {
	if len(data) < 8 {
		return nil, malformed("%d bytes: cut short in the header's length", len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	if n > maxHeader {
		return nil, malformed("the header claims %d bytes: at most %d", n, maxHeader)
	}
	if n > uint64(len(data)-8) {
		return nil, malformed("the header claims %d bytes, the file has %d after its length: cut short", n, len(data)-8)
	}
	head, body := data[8:8+n], data[8+n:]
	found, err := parseHeader(head)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(found, func(a, b located) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	w := &gpu.Weights{Tensors: make([]gpu.Tensor, 0, len(found))}
	at := int64(0)
	for _, t := range found {
		switch {
		case t.end > int64(len(body)):
			return nil, malformed("tensor %q: its numbers end at byte %d, the file has %d: cut short", t.name, t.end, len(body))
		case t.begin < at:
			return nil, malformed("tensor %q: its numbers begin at byte %d, inside those before it, which end at %d", t.name, t.begin, at)
		case t.begin > at:
			return nil, malformed("tensor %q: its numbers begin at byte %d, %d after those before it", t.name, t.begin, t.begin-at)
		}
		w.Tensors = append(w.Tensors, gpu.Tensor{Name: t.name, Shape: t.shape, Data: t.dtype.decode(body[t.begin:t.end])})
		at = t.end
	}
	if at != int64(len(body)) {
		return nil, malformed("%d bytes follow the last tensor's numbers", int64(len(body))-at)
	}
	return w, nil
}

// located is one tensor of the header, its shape checked against its offsets.
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
		return nil, malformed("the header is not a JSON object")
	}
	var found []located
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, malformed("the header is not JSON: %v", err)
		}
		if seen[name] {
			return nil, malformed("tensor %q: the name is used twice", name)
		}
		seen[name] = true
		if name == metadataKey {
			var text map[string]string
			if err := dec.Decode(&text); err != nil {
				return nil, malformed("%s: %v", metadataKey, err)
			}
			continue
		}
		if name == "" {
			return nil, malformed("a tensor has no name")
		}
		var e entry
		if err := dec.Decode(&e); err != nil {
			return nil, malformed("tensor %q: %v", name, err)
		}
		l, err := e.locate(name)
		if err != nil {
			return nil, err
		}
		found = append(found, l)
	}
	if _, err := dec.Token(); err != nil {
		return nil, malformed("the header is not JSON: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, malformed("the header goes on after its JSON object")
	}
	return found, nil
}

func (e entry) locate(name string) (located, error) {
	l := located{name: name, dtype: DType(e.DType), shape: make([]int, len(e.Shape))}
	size := int64(l.dtype.size())
	switch {
	case size == 0:
		return l, malformed("tensor %q: type %q is not supported: want %s or %s", name, e.DType, F32, BF16)
	case e.Shape == nil:
		return l, malformed("tensor %q: it has no shape", name)
	case e.Offsets == nil:
		return l, malformed("tensor %q: it has no data_offsets", name)
	}
	l.begin, l.end = e.Offsets[0], e.Offsets[1]
	if l.begin < 0 || l.end < l.begin {
		return l, malformed("tensor %q: offsets [%d, %d] are not a range", name, l.begin, l.end)
	}
	for i, s := range e.Shape {
		if s < 0 || s > math.MaxInt {
			return l, malformed("tensor %q: shape %v is out of range", name, e.Shape)
		}
		if s > 0 && size > math.MaxInt64/s {
			return l, malformed("tensor %q: shape %v is out of range", name, e.Shape)
		}
		size *= s
		l.shape[i] = int(s)
	}
	if size != l.end-l.begin {
		return l, malformed("tensor %q: shape %v takes %d bytes as %s, its offsets hold %d", name, e.Shape, size, l.dtype, l.end-l.begin)
	}
	return l, nil
}
