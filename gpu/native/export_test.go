package native

import (
	"context"

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
	e.begin()
	return e.trained.shared(e.weights, "")
}

// Moments copies AdamW's moments out.
func (e *Engine) Moments() []gpu.Tensor {
	return append(e.trained.tensorsOf(e.first, firstSuffix), e.trained.tensorsOf(e.second, secondSuffix)...)
}
