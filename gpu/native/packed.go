package native

import (
	"errors"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// forwardWeights are weights as the forward pass reads them: matrices laid out for repeated products.
type forwardWeights struct {
	norm, value []float32
	head        *kernel.Packed
	layers      []forwardLayer
	// embed has the embeddings of a model whose head is another matrix. half has them where they are kept in bfloat16.
	embed []float32
	half  []uint16
	// read is the room for embeddings that came from files.
	read []float32
}

type forwardLayer struct {
	attnNorm, mlpNorm    []float32
	qkv, o, gateUp, down *kernel.Packed
	// bias and the gains of the heads are nil where the model has none.
	bias, qNorm, kNorm []float32
	// lora are the block's adapters; nil without.
	lora *loraLayer
}

// copyEmbedding copies a token's embedding to x.
func (f *forwardWeights) copyEmbedding(x []float32, token int32) {
	at := int(token) * len(x)
	switch {
	case f.embed != nil:
		copy(x, f.embed[at:at+len(x)])
	case f.half != nil:
		kernel.WidenBF16(x, f.half[at:at+len(x)])
	default:
		f.head.Row(x, int(token))
	}
}

// loadTensors takes weights that fit the layout. Matrices and biases are copied, in the type keep, in pairs with dot; gains,
// the value head, and embeddings that are neither the head nor kept in bfloat16 stay where they are. Tensors in files are read
// a few rows at a time; nothing refers to the source afterwards.
func (f *forwardWeights) loadTensors(l *layout, pool *kernel.Pool, w *gpu.Weights, keep gpu.DType, dot bool) error {
	r := &reading{weights: w, keep: keep, dot: dot}
	tensors := w.Tensors
	take := func(n int) []gpu.Tensor {
		taken := tensors[:n]
		tensors = tensors[n:]
		return taken
	}
	small := func() []float32 { return r.readWhole(take(1)[0]) }
	var jobs []func(room *[]float32) error
	pack := func(to **kernel.Packed, k, n int, from ...gpu.Tensor) {
		jobs = append(jobs, func(room *[]float32) error { return r.repackMatrix(to, k, n, from, room) })
	}
	if f.layers == nil {
		f.layers = make([]forwardLayer, l.layers)
	}
	embed := take(1)[0]
	for i := range f.layers {
		t := &f.layers[i]
		t.attnNorm = small()
		var qkv []gpu.Tensor
		t.bias = t.bias[:0]
		for range 3 {
			qkv = append(qkv, take(1)...)
			if l.cfg.QKVBias {
				t.bias = append(t.bias, small()...)
			}
		}
		pack(&t.qkv, l.d, l.qkv, qkv...)
		pack(&t.o, l.q, l.d, take(1)...)
		if l.cfg.QKNorm {
			t.qNorm, t.kNorm = small(), small()
		}
		t.mlpNorm = small()
		pack(&t.gateUp, l.d, 2*l.ff, take(2)...)
		pack(&t.down, l.ff, l.d, take(1)...)
	}
	f.norm = small()
	if l.cfg.TieEmbeddings {
		pack(&f.head, l.d, l.v, embed)
	} else {
		pack(&f.head, l.d, l.v, take(1)...)
		jobs = append(jobs, func(room *[]float32) error { return r.keepEmbeddings(f, embed, room) })
	}
	if l.cfg.ValueHead {
		f.value = small()
	}
	errs := make([]error, len(jobs), len(jobs)+1)
	pool.ParallelFor(len(jobs), 1, func(lo, hi int) {
		room := r.lendRoom()
		defer r.returnRoom(room)
		for i := lo; i < hi; i++ {
			errs[i] = jobs[i](room)
		}
	})
	return errors.Join(append(errs, r.failed)...)
}

// splitArray cuts a flat array into its tensors, in the layout's order.
func (l *layout) splitArray(data []float32) [][]float32 {
	out := make([][]float32, len(l.tensors))
	for i, t := range l.tensors {
		out[i] = data[t.off : t.off+t.n : t.off+t.n]
	}
	return out
}

// orderTensors puts weights that fit the layout in its order, and else returns an ErrMismatch.
func (l *layout) orderTensors(w *gpu.Weights) (*gpu.Weights, error) {
	order, err := l.matchTensors(w.Tensors, "")
	if err == nil && w.Source == nil {
		err = l.checkDataSizes(w.Tensors)
	}
	if err != nil {
		return nil, err
	}
	out := &gpu.Weights{Tensors: make([]gpu.Tensor, len(order)), Source: w.Source}
	for i, j := range order {
		out.Tensors[i] = w.Tensors[j]
	}
	return out, nil
}
