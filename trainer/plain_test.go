package trainer

import (
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/loss"
)

// What plainLoop needs of the learner's arithmetic, written once more.

// constantRate are the options of every optimizer step under a constant schedule without a warm-up.
func constantRate(o learner.Optimizer) gpu.StepOptions {
	return gpu.StepOptions{LearningRate: o.LearningRate, Beta1: o.Beta1}
}

// gradients are the loss's, as an engine takes them.
func gradients(r *loss.Result) *gpu.Gradients {
	return &gpu.Gradients{Logprobs: narrow(r.Grad), Entropies: narrow(r.GradEntropies), Values: narrow(r.GradValues)}
}

func widen(x []float32) []float64 {
	if x == nil {
		return nil
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func narrow(x []float64) []float32 {
	if len(x) == 0 {
		return nil
	}
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
