package native

import (
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

const (
	// An engine of more than viewedModel parameters reads its matrices where they are, and does not copy them into the layout
	// for repeated products. The copy saves time at few rows, and little at the many rows of training.
	viewedModel = 64 << 20
	// viewedRows is then the largest number of rows taken through a block's matrices at once. Each matrix is laid out again for
	// them.
	viewedRows = 512
)

// isLargeModel reports whether an engine of the model may read its matrices where they are.
func (l *layout) isLargeModel() bool { return l.size > viewedModel }

// readsMatricesInPlace reports whether the engine reads its matrices where they are. Rounded matrices are a copy.
func (e *Engine) readsMatricesInPlace() bool {
	return e.layout.isLargeModel() && e.forwardDType == gpu.Float32
}

// packWeights brings the forward pass's weights up to date.
func (e *Engine) packWeights() {
	if !e.readsMatricesInPlace() {
		if err := e.fast.loadTensors(&e.layout, e.pool, &gpu.Weights{Tensors: e.namedTensors(e.data, "")}, e.forwardDType, e.dot); err != nil {
			panic(fmt.Sprintf("lay out the engine's own weights: %v", err)) // they are in memory and of its own layout
		}
		return
	}
	e.fast.viewMatrices(&e.layout, e.w)
}

// viewMatrices reads weights where they lie in w, whose changes it follows from then on.
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

// forwardRows is the number of rows, of n, that a piece of the forward pass's work takes through a block's matrices.
func (e *Engine) forwardRows(n int) int {
	if !e.readsMatricesInPlace() {
		return rowBlock
	}
	each := (n + e.pool.Workers() - 1) / e.pool.Workers()
	return min(max(each, rowBlock), viewedRows)
}
