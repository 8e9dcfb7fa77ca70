package torch

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// Bounds of a frame: bytes beyond them are no frame.
const (
	maxHeader = 1 << 26
	maxBuffer = 1 << 34
)

// buffer is an array of a frame: []int32, []float32, []float64 or []uint8.
type buffer struct {
	name string
	data any
}

// described is how a header lists a buffer: its name, the kind of its numbers, and how many there are.
type described struct {
	name, kind string
	count      int64
}

// MarshalJSON writes [name, kind, count].
func (d described) MarshalJSON() ([]byte, error) { return json.Marshal([]any{d.name, d.kind, d.count}) }

// UnmarshalJSON reads [name, kind, count].
func (d *described) UnmarshalJSON(data []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if len(parts) != 3 {
		return fmt.Errorf("buffer %s: want a name, a kind and a count", data)
	}
	return errors.Join(json.Unmarshal(parts[0], &d.name), json.Unmarshal(parts[1], &d.kind), json.Unmarshal(parts[2], &d.count))
}

// kinds are the sizes of numbers, in bytes.
var kinds = map[string]int64{"i32": 4, "f32": 4, "f64": 8, "u8": 1}

func describeBuffer(b buffer) (described, error) {
	switch data := b.data.(type) {
	case []int32:
		return described{b.name, "i32", int64(len(data))}, nil
	case []float32:
		return described{b.name, "f32", int64(len(data))}, nil
	case []float64:
		return described{b.name, "f64", int64(len(data))}, nil
	case []uint8:
		return described{b.name, "u8", int64(len(data))}, nil
	}
	return described{}, fmt.Errorf("buffer %s is a %T", b.name, b.data)
}

// appendFrame appends a frame to out: a header with the buffers listed, then the buffers.
func appendFrame(out []byte, header map[string]any, buffers ...buffer) ([]byte, error) {
	listed := make([]described, 0, len(buffers))
	for _, b := range buffers {
		d, err := describeBuffer(b)
		if err != nil {
			return nil, err
		}
		listed = append(listed, d)
	}
	if len(listed) > 0 {
		header["bufs"] = listed
	}
	head, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	if len(head) > maxHeader {
		return nil, fmt.Errorf("a header of %d bytes: at most %d", len(head), maxHeader)
	}
	out = binary.LittleEndian.AppendUint32(out, uint32(len(head)))
	out = append(out, head...)
	for _, b := range buffers {
		if out, err = binary.Append(out, binary.LittleEndian, b.data); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// frame is a frame that a rank sent.
type frame struct {
	ID uint64 `json:"id"`
	// Op and Done are the progress of the operation under way, in a frame of id 0.
	Op   string `json:"op"`
	Done int64  `json:"done"`
	// Written is true where a save's files are whole.
	Written bool        `json:"written"`
	Error   *fault      `json:"error"`
	Bufs    []described `json:"bufs"`

	header  []byte
	buffers map[string]any
}

// fault is an error of a rank.
type fault struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Trace   string `json:"trace"`
}

// readFrame reads a frame. It allocates little more than the bytes that have come.
func readFrame(r io.Reader) (*frame, error) {
	var size uint32
	if err := binary.Read(r, binary.LittleEndian, &size); err != nil {
		return nil, err
	}
	if size > maxHeader {
		return nil, fmt.Errorf("a header of %d bytes: at most %d", size, maxHeader)
	}
	head, err := readBytes(r, int64(size))
	if err != nil {
		return nil, err
	}
	f := &frame{header: head, buffers: map[string]any{}}
	if err := json.Unmarshal(head, f); err != nil {
		return nil, fmt.Errorf("parse a header: %w", err)
	}
	for _, d := range f.Bufs {
		width, ok := kinds[d.kind]
		if !ok || d.count < 0 || d.count > maxBuffer/width {
			return nil, fmt.Errorf("buffer %q has %d entries of kind %q", d.name, d.count, d.kind)
		}
		data, err := readBytes(r, d.count*width)
		if err != nil {
			return nil, err
		}
		f.buffers[d.name] = decodeNumbers(d.kind, data)
	}
	return f, nil
}

// readBytes reads n bytes, allocating as they come.
func readBytes(r io.Reader, n int64) ([]byte, error) {
	const piece = 1 << 20
	var out []byte
	for int64(len(out)) < n {
		at := len(out)
		more := int(min(n-int64(at), max(piece, int64(at))))
		out = append(out, make([]byte, more)...)
		if _, err := io.ReadFull(r, out[at:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return out, nil
}

func decodeNumbers(kind string, data []byte) any {
	switch kind {
	case "i32":
		out := make([]int32, len(data)/4)
		for i := range out {
			out[i] = int32(binary.LittleEndian.Uint32(data[4*i:]))
		}
		return out
	case "f32":
		out := make([]float32, len(data)/4)
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		return out
	case "f64":
		out := make([]float64, len(data)/8)
		for i := range out {
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
		}
		return out
	}
	return data
}

// floatBuffer is a buffer of n float32, an error where the rank sent another.
func (f *frame) floatBuffer(name string, n int) ([]float32, error) {
	x, ok := f.buffers[name].([]float32)
	if !ok || len(x) != n {
		return nil, fmt.Errorf("a rank answered with %d %s for %d tokens", len(x), name, n)
	}
	return x, nil
}

// decodeHeader decodes the header into v.
func (f *frame) decodeHeader(v any) error {
	if err := json.Unmarshal(f.header, v); err != nil {
		return fmt.Errorf("parse a rank's answer: %w", err)
	}
	return nil
}

// withLength is data after its length.
func withLength(data []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(make([]byte, 0, len(data)+4), uint32(len(data))), data...)
}
