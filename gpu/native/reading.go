package native

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// reading lays weights out, from memory or from files.
type reading struct {
	weights *gpu.Weights
	keep    gpu.DType
	dot     bool
	// failed is the first error of readWhole, which a single goroutine calls.
	failed error

	mu    sync.Mutex
	rooms []*[]float32
}

// readRows is the number of a matrix's numbers that each worker has in memory at once while it reads a file.
const readRows = 1 << 20

// lendRoom gives a worker room for numbers.
func (r *reading) lendRoom() *[]float32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.rooms); n > 0 {
		room := r.rooms[n-1]
		r.rooms = r.rooms[:n-1]
		return room
	}
	return new([]float32)
}

func (r *reading) returnRoom(room *[]float32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rooms = append(r.rooms, room)
}

// readWhole returns a tensor's numbers: its own, or a copy from its file.
func (r *reading) readWhole(t gpu.Tensor) []float32 {
	var own []float32
	x, err := r.weights.Numbers(context.Background(), t, &own)
	if err != nil && r.failed == nil {
		r.failed = err
	}
	return x
}

// readParts calls each with a tensor's numbers, some at a time, and ends early where each returns false.
func (r *reading) readParts(t gpu.Tensor, room *[]float32, each func(at int, x []float32) bool) error {
	for at, n := 0, t.Elements(); at < n; at += readRows {
		x, err := r.weights.Part(context.Background(), t, at, min(readRows, n-at), room)
		if err != nil {
			return err
		}
		if !each(at, x) {
			return nil
		}
	}
	return nil
}

// inHalf reports whether numbers are kept in bfloat16: when keep asks for it, or, without keep, when rounding changes none.
func (r *reading) inHalf(from []gpu.Tensor, room *[]float32) (bool, error) {
	if r.keep != "" {
		return r.keep == gpu.BFloat16, nil
	}
	half := true
	for _, t := range from {
		if t.Data == nil && r.weights.Source != nil && r.weights.Source.StoredAs(t.Name) == gpu.BFloat16 {
			continue
		}
		err := r.readParts(t, room, func(_ int, x []float32) bool {
			half = !slices.ContainsFunc(x, func(v float32) bool { return math.Float32bits(v)&0xffff != 0 })
			return half
		})
		if err != nil || !half {
			return false, err
		}
	}
	return true, nil
}

// repackMatrix lays a matrix out in to, which is replaced where its type is the other. The rows of the tensors from follow one
// another.
func (r *reading) repackMatrix(to **kernel.Packed, k, n int, from []gpu.Tensor, room *[]float32) error {
	half, err := r.inHalf(from, room)
	if err != nil {
		return err
	}
	if w := *to; w == nil || w.BF16() != half {
		switch {
		case half && r.dot:
			*to = kernel.NewPackedDot(k, n)
		case half:
			*to = kernel.NewPackedBF16(k, n)
		default:
			*to = kernel.NewPacked(k, n)
		}
	}
	if r.weights.Source != nil {
		return r.repackRows(*to, k, n, from, room)
	}
	data := make([][]float32, len(from))
	for i, t := range from {
		data[i] = t.Data
	}
	(*to).Repack(data...)
	return nil
}

// repackRows is Repack, a few rows at a time.
func (r *reading) repackRows(to *kernel.Packed, k, n int, from []gpu.Tensor, room *[]float32) error {
	group := to.RowGroup()
	rows := max(readRows/max(k*group, 1), 1) * group
	*room = slices.Grow((*room)[:0], min(rows, n)*k)[:min(rows, n)*k]
	// first is the row with which the tensor at from[0] begins.
	first := 0
	for j := 0; j < n; j += rows {
		block := (*room)[:min(rows, n-j)*k]
		for at := 0; at < len(block); {
			t := from[0]
			begin := (j-first)*k + at
			if begin == t.Elements() {
				first, from = first+t.Elements()/k, from[1:]
				continue
			}
			part := block[at:min(len(block), at+t.Elements()-begin)]
			x, err := r.weights.Part(context.Background(), t, begin, len(part), &part)
			if err != nil {
				return err
			}
			at += copy(block[at:], x) // no copy is made where Part read into block itself
		}
		to.RepackRows(j, block)
	}
	return nil
}

// keepEmbeddings keeps the embeddings of a model whose head is a separate matrix.
func (r *reading) keepEmbeddings(f *forwardWeights, embed gpu.Tensor, room *[]float32) error {
	half, err := r.inHalf([]gpu.Tensor{embed}, room)
	if err != nil {
		return err
	}
	if !half {
		f.half = nil
		f.embed, err = r.weights.Numbers(context.Background(), embed, &f.read)
		return err
	}
	n := embed.Elements()
	f.embed, f.half = nil, slices.Grow(f.half[:0], n)[:n]
	return r.readParts(embed, room, func(at int, x []float32) bool {
		kernel.RoundBF16(f.half[at:at+len(x)], x)
		return true
	})
}
