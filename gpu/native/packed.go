package native

import "github.com/weir-rl/weir/gpu/native/kernel"

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
}

// load takes w; matrices are copied, gains, embeddings and the value head become views of w.
func (f *forwardWeights) load(l *layout, pool *kernel.Pool, w view) {
	f.embed, f.norm, f.value = w.embed, w.norm, w.value
	if f.layers == nil {
		f.layers = make([]forwardLayer, l.layers)
	}
	type job struct {
		to     **kernel.Packed
		from   []float32
		inputs int
	}
	jobs := []job{{&f.head, w.head, l.d}}
	for i := range f.layers {
		t, s := &f.layers[i], &w.layers[i]
		t.attnNorm, t.mlpNorm = s.attnNorm, s.mlpNorm
		jobs = append(jobs, job{&t.qkv, s.qkv, l.d}, job{&t.o, s.o, l.q}, job{&t.gateUp, s.gateUp, l.d}, job{&t.down, s.down, l.ff})
	}
	pool.ParallelFor(len(jobs), 1, func(lo, hi int) {
		for _, j := range jobs[lo:hi] {
			if *j.to == nil {
				*j.to = kernel.PackNT(j.from, j.inputs, len(j.from)/j.inputs)
			} else {
				(*j.to).Repack(j.from)
			}
		}
	})
}
