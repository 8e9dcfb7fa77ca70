package native

import (
	"context"
	"fmt"
	"math"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// stepBlock is the number of parameters in a piece of the optimizer's work. The gradient's norm is summed by such pieces.
const stepBlock = 1 << 15

// Step clips the gathered gradient, takes a step of AdamW and clears the gradient.
func (e *Engine) Step(ctx context.Context, o gpu.StepOptions) (gpu.StepStats, error) {
	if err := ctx.Err(); err != nil {
		return gpu.StepStats{}, err
	}
	if err := o.Validate(); err != nil {
		return gpu.StepStats{}, fmt.Errorf("step: %w", err)
	}
	e.ensureWeights()
	e.allocateGradient()
	e.moments.allocateZeros(e.trained.size)
	stats := gpu.StepStats{GradNorm: e.gradientNorm()}
	defer clear(e.grad)
	if math.IsNaN(stats.GradNorm) || math.IsInf(stats.GradNorm, 0) {
		stats.Skipped = true
		return stats, nil
	}
	scale := 1.0
	if o.ClipNorm > 0 && stats.GradNorm > o.ClipNorm {
		scale = o.ClipNorm / stats.GradNorm
	}
	e.moments.steps++
	step := kernel.AdamWStep{
		Beta1: float32(o.Beta1), Beta2: float32(o.Beta2), Epsilon: float32(o.Epsilon), GradScale: float32(scale),
		Correction1: float32(1 - math.Pow(o.Beta1, float64(e.moments.steps))),
		Correction2: float32(1 - math.Pow(o.Beta2, float64(e.moments.steps))),
	}
	for _, t := range e.trained.tensors {
		lr, decay := o.LearningRate, o.WeightDecay
		if t.kind != table {
			decay = 0
		}
		if t.name == gpu.ValueHeadTensor && o.ValueLearningRate > 0 {
			lr = o.ValueLearningRate
		}
		step.LearningRate, step.Decay = float32(lr), float32(decay)
		e.forEachBlock(t.n, stepBlock, func(_ *scratch, lo, hi int) {
			lo, hi = t.off+lo, t.off+hi
			kernel.AdamW(e.weights[lo:hi], e.moments.first[lo:hi], e.moments.second[lo:hi], e.grad[lo:hi], step)
		})
	}
	e.stale, e.kept = e.stale || e.lora == nil, false
	return stats, nil
}

// gradientNorm is the gradient's global L2 norm: sums of fixed blocks, added in order.
func (e *Engine) gradientNorm() float64 {
	sums := make([]float64, (e.trained.size+stepBlock-1)/stepBlock)
	e.forEachBlock(e.trained.size, stepBlock, func(_ *scratch, lo, hi int) {
		sums[lo/stepBlock] = kernel.SumSquares(e.grad[lo:hi])
	})
	var sum float64
	for _, s := range sums {
		sum += s
	}
	return math.Sqrt(sum)
}
