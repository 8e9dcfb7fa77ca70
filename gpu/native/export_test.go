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

// Moments copies AdamW's moments out.
func (e *Engine) Moments() []gpu.Tensor {
	return append(e.tensorsOf(e.first, firstSuffix), e.tensorsOf(e.second, secondSuffix)...)
}
