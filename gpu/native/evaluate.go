package native

import (
	"context"
	"fmt"

	"github.com/weir-rl/weir/gpu"
)

// Limits of the engine: a single rank, parts of any size.
func (e *Engine) Limits() gpu.Limits { return gpu.Limits{Ranks: 1, ProbSquares: true, Repeats: true} }

// Evaluate runs parts through the model one after another.
func (e *Engine) Evaluate(ctx context.Context, parts []*gpu.Batch, each func(i int, o *gpu.Outputs) error) error {
	for i, b := range parts {
		o, err := e.forward(ctx, b, false)
		if err != nil {
			return fmt.Errorf("evaluate: %w", partError(ctx, i, err))
		}
		if err := each(i, o); err != nil {
			return err
		}
	}
	return nil
}

// Accumulate runs parts through the model one after another. Each goes back as soon as its gradient is known, so the
// activations of a single part are held at a time.
func (e *Engine) Accumulate(ctx context.Context, parts []*gpu.Batch, each func(i int, o *gpu.Outputs) (*gpu.Gradients, error)) error {
	for i, b := range parts {
		o, err := e.forward(ctx, b, true)
		if err != nil {
			return fmt.Errorf("accumulate: %w", partError(ctx, i, err))
		}
		g, err := each(i, o)
		if err != nil {
			return err
		}
		if g == nil {
			continue
		}
		if err := e.backward(ctx, g); err != nil {
			return fmt.Errorf("accumulate: %w", partError(ctx, i, err))
		}
	}
	return nil
}

// partError names the part that failed; when ctx has ended, no part is at fault and err is returned as it is.
func partError(ctx context.Context, i int, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return &gpu.PartError{Part: i, Err: err}
}

// Discard clears the gathered gradient.
func (e *Engine) Discard(ctx context.Context) error {
	e.kept = false
	clear(e.grad)
	return ctx.Err()
}
