package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weir-rl/weir/gpu"
)

// metadataKey holds free text in the header; Transformers will not load a file whose format is not named.
const metadataKey = "__metadata__"

const metadata = `"` + metadataKey + `":{"format":"pt"}`

// entry is a tensor in the header.
type entry struct {
	DType   string    `json:"dtype"`
	Shape   []int64   `json:"shape"`
	Offsets *[2]int64 `json:"data_offsets"`
}

// Encode writes the tensors with their numbers stored as dtype. The same tensors give the same bytes. The
// error names the tensor: an empty, repeated or reserved name, or a shape that is not its data's.
func Encode(w *gpu.Weights, dtype DType) ([]byte, error) {
	head, size, err := encodeHeader(w, dtype)
	if err != nil {
		return nil, err
	}
	b := append(make([]byte, 0, len(head)+size), head...)
	for _, t := range w.Tensors {
		b = dtype.appendNumbers(b, t.Data)
	}
	return b, nil
}

// Write is Encode to a stream, without a second copy of the numbers.
func Write(out io.Writer, w *gpu.Weights, dtype DType) error {
	head, _, err := encodeHeader(w, dtype)
	if err != nil {
		return err
	}
	if _, err := out.Write(head); err != nil {
		return fmt.Errorf("write safetensors header: %w", err)
	}
	const piece = 1 << 16
	buf := make([]byte, 0, piece*dtype.elementSize())
	for _, t := range w.Tensors {
		for x := range slices.Chunk(t.Data, piece) {
			if _, err := out.Write(dtype.appendNumbers(buf[:0], x)); err != nil {
				return fmt.Errorf("write tensor %q: %w", t.Name, err)
			}
		}
	}
	return nil
}

// encodeHeader is everything before the numbers, and the numbers' size in bytes.
func encodeHeader(w *gpu.Weights, dtype DType) ([]byte, int, error) {
	for _, t := range w.Tensors {
		if err := checkData(t); err != nil {
			return nil, 0, fmt.Errorf("encode tensor %q: %w", t.Name, err)
		}
	}
	return headerOf(w.Tensors, dtype)
}

// headerOf is encodeHeader for tensors whose data need not be there.
func headerOf(tensors []gpu.Tensor, dtype DType) ([]byte, int, error) {
	if dtype.elementSize() == 0 {
		return nil, 0, fmt.Errorf("encode safetensors: type %q is not supported: want %s", dtype, known)
	}
	type named struct {
		name string
		json []byte
	}
	entries := make([]named, 0, len(tensors))
	seen := make(map[string]bool, len(tensors))
	size := 0
	for _, t := range tensors {
		if err := checkTensor(t); err != nil {
			return nil, 0, fmt.Errorf("encode tensor %q: %w", t.Name, err)
		}
		if seen[t.Name] {
			return nil, 0, fmt.Errorf("encode tensor %q: the name is used twice", t.Name)
		}
		seen[t.Name] = true
		e := entry{DType: string(dtype), Shape: make([]int64, len(t.Shape))}
		for i, s := range t.Shape {
			e.Shape[i] = int64(s)
		}
		end := size + t.Elements()*dtype.elementSize()
		e.Offsets = &[2]int64{int64(size), int64(end)}
		size = end
		j, err := json.Marshal(e)
		if err != nil {
			return nil, 0, fmt.Errorf("encode tensor %q: %w", t.Name, err)
		}
		entries = append(entries, named{t.Name, j})
	}
	slices.SortFunc(entries, func(a, b named) int { return strings.Compare(a.name, b.name) })

	var b bytes.Buffer
	b.Write(make([]byte, 8))
	b.WriteByte('{')
	b.WriteString(metadata)
	for _, e := range entries {
		name, err := json.Marshal(e.name)
		if err != nil {
			return nil, 0, fmt.Errorf("encode tensor %q: %w", e.name, err)
		}
		b.WriteByte(',')
		b.Write(name)
		b.WriteByte(':')
		b.Write(e.json)
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if n := b.Len() - 8; n > maxHeader {
		return nil, 0, fmt.Errorf("encode safetensors: the header takes %d bytes: at most %d", n, maxHeader)
	}
	head := b.Bytes()
	binary.LittleEndian.PutUint64(head, uint64(len(head)-8))
	return head, size, nil
}

func checkTensor(t gpu.Tensor) error {
	switch {
	case t.Name == "":
		return fmt.Errorf("the name is empty")
	case t.Name == metadataKey:
		return fmt.Errorf("the name is reserved")
	case !utf8.ValidString(t.Name):
		return fmt.Errorf("the name is not UTF-8")
	}
	for _, s := range t.Shape {
		if s < 0 {
			return fmt.Errorf("shape %v has a negative size", t.Shape)
		}
	}
	return nil
}

// checkData reports a shape that is not its data's.
func checkData(t gpu.Tensor) error {
	if err := checkTensor(t); err != nil {
		return err
	}
	n := 1
	if slices.Contains(t.Shape, 0) {
		n = 0
	}
	for _, s := range t.Shape {
		if n > 0 && s > len(t.Data)/n {
			n = -1 // more than there is; the whole product may overflow
			break
		}
		n *= s
	}
	if n != len(t.Data) {
		return fmt.Errorf("shape %v does not hold the data's %d elements", t.Shape, len(t.Data))
	}
	return nil
}
