package native

import (
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// forwardWeights are weights as the forward pass reads them: matrices laid out for repeated products. Gains,
// embeddings and the value head are as in view.
type forwardWeights struct {
	embed, norm, value []float32
	head               *kernel.Packed
	layers             []forwardLayer
}

type forwardLayer struct {
	attnNorm, mlpNorm    []float32
	qkv, o, gateUp, down *kernel.Packed
	// bias and the gains of the heads are nil where the model has none.
	bias, qNorm, kNorm []float32
	// low are the block's adapters; nil without.
	low *lowLayer
}

func newForwardWeights(l *layout) *forwardWeights {
	f := &forwardWeights{head: kernel.NewPacked(l.d, l.v), layers: make([]forwardLayer, l.layers)}
	for i := range f.layers {
		t := &f.layers[i]
		t.qkv, t.o = kernel.NewPacked(l.d, l.qkv), kernel.NewPacked(l.q, l.d)
		t.gateUp, t.down = kernel.NewPacked(l.d, 2*l.ff), kernel.NewPacked(l.ff, l.d)
	}
	return f
}

// load takes tensors, one for each of the layout's and in its order: matrices and biases are copied, gains, embeddings
// and the value head kept.
func (f *forwardWeights) load(l *layout, pool *kernel.Pool, tensors [][]float32) {
	type job struct {
		to   *kernel.Packed
		from [][]float32
	}
	take := func(n int) [][]float32 {
		taken := tensors[:n]
		tensors = tensors[n:]
		return taken
	}
	var jobs []job
	f.embed = take(1)[0]
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
		jobs = append(jobs, job{t.qkv, qkv}, job{t.o, take(1)})
		if l.cfg.QKNorm {
			t.qNorm, t.kNorm = take(1)[0], take(1)[0]
		}
		t.mlpNorm = take(1)[0]
		jobs = append(jobs, job{t.gateUp, take(2)}, job{t.down, take(1)})
	}
	f.norm = take(1)[0]
	head := job{f.head, [][]float32{f.embed}}
	if !l.cfg.TieEmbeddings {
		head.from = take(1)
	}
	jobs = append(jobs, head)
	if l.cfg.ValueHead {
		f.value = take(1)[0]
	}
	pool.ParallelFor(len(jobs), 1, func(lo, hi int) {
		for _, j := range jobs[lo:hi] {
			j.to.Repack(j.from...)
		}
	})
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
