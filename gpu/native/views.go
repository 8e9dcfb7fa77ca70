package native

import (
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

const (
	// An engine of more than viewedModel parameters reads its matrices where they are, and does not copy them into the layout for
	// repeated products: what that saves in time at a few rows is little at the many rows of training.
	viewedModel = 64 << 20
	// viewedRows is how many rows it then takes through a block's matrices at most, each matrix being laid out again for them.
	viewedRows = 512
)

// isLargeModel says whether an engine of the model reads its matrices where they are.
func (l *layout) isLargeModel() bool { return l.size > viewedModel }

// readsMatricesInPlace says whether the engine does: rounded matrices are a copy.
func (e *Engine) readsMatricesInPlace() bool {
	return e.layout.isLargeModel() && e.forwardDType == gpu.Float32
}

// packWeights makes the forward pass's weights those of now.
func (e *Engine) packWeights() {
	if !e.readsMatricesInPlace() {
		if err := e.fast.loadTensors(&e.layout, e.pool, &gpu.Weights{Tensors: e.namedTensors(e.data, "")}, e.forwardDType, e.dot); err != nil {
			panic(fmt.Sprintf("lay out the engine's own weights: %v", err)) // they are in memory and of its own layout
		}
		return
	}
	e.fast.viewMatrices(&e.layout, e.w)
}

// viewMatrices takes weights as they lie in w, which it follows from then on.
func (f *forwardWeights) viewMatrices(l *layout, w view) {
	f.norm, f.value = w.norm, w.value
	f.head = kernel.ViewNT(w.head, l.d, l.v)
	f.layers = make([]forwardLayer, l.layers)
	for i := range f.layers {
		t := w.layers[i]
		f.layers[i] = forwardLayer{
			attnNorm: t.attnNorm, mlpNorm: t.mlpNorm, bias: t.bias, qNorm: t.qNorm, kNorm: t.kNorm,
			qkv: kernel.ViewNT(t.qkv, l.d, l.qkv), o: kernel.ViewNT(t.o, l.q, l.d),
			gateUp: kernel.ViewNT(t.gateUp, l.d, 2*l.ff), down: kernel.ViewNT(t.down, l.ff, l.d),
		}
	}
}

// forwardRows is how many of n rows one piece of the forward pass's work takes through a block's matrices.
func (e *Engine) forwardRows(n int) int {
	if !e.readsMatricesInPlace() {
		return rowBlock
	}
	each := (n + e.pool.Workers() - 1) / e.pool.Workers()
	return min(max(each, rowBlock), viewedRows)
}
