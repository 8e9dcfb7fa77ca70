package native

import (
	"math"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// forwardWeights are weights as the forward pass reads them: matrices laid out for repeated products.
type forwardWeights struct {
	norm, value []float32
	head        *kernel.Packed
	layers      []forwardLayer
	// embed has the embeddings of a model whose head is another matrix, half where they are kept in bfloat16.
	embed []float32
	half  []uint16
}

type forwardLayer struct {
	attnNorm, mlpNorm    []float32
	qkv, o, gateUp, down *kernel.Packed
	// bias and the gains of the heads are nil where the model has none.
	bias, qNorm, kNorm []float32
	// low are the block's adapters; nil without.
	low *lowLayer
}

// embedding copies a token's embedding to x.
func (f *forwardWeights) embedding(x []float32, token int32) {
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

// load takes tensors, one for each of the layout's and in its order. Matrices and biases are copied, in the type that keep says;
// gains, the value head, and embeddings that are neither the head nor kept in bfloat16 stay where they are.
func (f *forwardWeights) load(l *layout, pool *kernel.Pool, tensors [][]float32, keep gpu.DType) {
	var jobs []func()
	take := func(n int) [][]float32 {
		taken := tensors[:n]
		tensors = tensors[n:]
		return taken
	}
	pack := func(to **kernel.Packed, k, n int, from ...[]float32) {
		jobs = append(jobs, func() { repack(to, k, n, from, keep) })
	}
	if f.layers == nil {
		f.layers = make([]forwardLayer, l.layers)
	}
	embed := take(1)[0]
	for i := range f.layers {
		t := &f.layers[i]
		t.attnNorm = take(1)[0]
		var qkv [][]float32
		t.bias = t.bias[:0]
		for range 3 {
			qkv = append(qkv, take(1)...)
			if l.cfg.QKVBias {
				t.bias = append(t.bias, take(1)[0]...)
			}
		}
		pack(&t.qkv, l.d, l.qkv, qkv...)
		pack(&t.o, l.q, l.d, take(1)...)
		if l.cfg.QKNorm {
			t.qNorm, t.kNorm = take(1)[0], take(1)[0]
		}
		t.mlpNorm = take(1)[0]
		pack(&t.gateUp, l.d, 2*l.ff, take(2)...)
		pack(&t.down, l.ff, l.d, take(1)...)
	}
	f.norm = take(1)[0]
	if l.cfg.TieEmbeddings {
		pack(&f.head, l.d, l.v, embed)
	} else {
		pack(&f.head, l.d, l.v, take(1)...)
		jobs = append(jobs, func() { f.keepEmbeddings(embed, keep) })
	}
	if l.cfg.ValueHead {
		f.value = take(1)[0]
	}
	pool.ParallelFor(len(jobs), 1, func(lo, hi int) {
		for _, job := range jobs[lo:hi] {
			job()
		}
	})
}

// repack lays a matrix out in to, which is made again where it has the other type.
func repack(to **kernel.Packed, k, n int, from [][]float32, keep gpu.DType) {
	half := inHalf(keep, from...)
	if w := *to; w == nil || w.BF16() != half {
		*to = kernel.NewPacked(k, n)
		if half {
			*to = kernel.NewPackedBF16(k, n)
		}
	}
	(*to).Repack(from...)
}

func (f *forwardWeights) keepEmbeddings(embed []float32, keep gpu.DType) {
	if !inHalf(keep, embed) {
		f.embed, f.half = embed, nil
		return
	}
	f.embed, f.half = nil, slices.Grow(f.half[:0], len(embed))[:len(embed)]
	kernel.RoundBF16(f.half, embed)
}

// inHalf says whether numbers are kept in bfloat16: when they are to be, or when that takes nothing from them.
func inHalf(keep gpu.DType, parts ...[]float32) bool {
	if keep != "" {
		return keep == gpu.BFloat16
	}
	for _, xs := range parts {
		for _, x := range xs {
			if math.Float32bits(x)&0xffff != 0 {
				return false
			}
		}
	}
	return true
}

// parts are a flat array's tensors, in the layout's order.
func (l *layout) parts(data []float32) [][]float32 {
	out := make([][]float32, len(l.tensors))
	for i, t := range l.tensors {
		out[i] = data[t.off : t.off+t.n : t.off+t.n]
	}
	return out
}

// ordered are the tensors of weights that fit the layout, in its order, else an ErrMismatch.
func (l *layout) ordered(w *gpu.Weights) ([][]float32, error) {
	order, err := l.match(w.Tensors, "")
	if err == nil {
		err = l.whole(w.Tensors)
	}
	if err != nil {
		return nil, err
	}
	out := make([][]float32, len(order))
	for i, j := range order {
		out[i] = w.Tensors[j].Data
	}
	return out, nil
}
