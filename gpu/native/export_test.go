package native

import (
	"context"
	"slices"

	"github.com/weir-rl/weir/gpu"
)

// Forward is forward, for tests of one pass at a time.
func (e *Engine) Forward(ctx context.Context, b *gpu.Batch, keep bool) (*gpu.Outputs, error) {
	return e.forward(ctx, b, keep)
}

// Backward is backward.
func (e *Engine) Backward(ctx context.Context, g *gpu.Gradients) error { return e.backward(ctx, g) }

// Trained are the tensors that Step changes, over the engine's memory.
func (e *Engine) Trained() []gpu.Tensor {
	e.ensureWeights()
	return e.trained.namedTensors(e.weights, "")
}

// Moments copies AdamW's moments out.
func (e *Engine) Moments() []gpu.Tensor {
	return append(e.trained.copyTensors(e.moments.first, firstSuffix), e.trained.copyTensors(e.moments.second, secondSuffix)...)
}

// copyTensors copies a flat array out as named tensors.
func (l *layout) copyTensors(data []float32, suffix string) []gpu.Tensor {
	out := l.namedTensors(data, suffix)
	for i, t := range out {
		out[i].Shape, out[i].Data = slices.Clone(t.Shape), slices.Clone(t.Data)
	}
	return out
}
