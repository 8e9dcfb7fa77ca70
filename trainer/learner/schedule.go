package learner

import (
	"math"

	"github.com/weir-rl/weir/gpu"
)

// The schedules of the learning rate.
const (
	ScheduleConstant = "constant"
	ScheduleLinear   = "linear"
	ScheduleCosine   = "cosine"
)

// scheduledRate returns the learning rate of step, 0 <= step < total: a linear rise over the warm-up, then the schedule down to final times
// the peak at the last step.
func scheduledRate(schedule string, peak, final float64, step, warmup, total int64) float64 {
	if step < warmup {
		return peak * float64(step+1) / float64(warmup)
	}
	if total <= warmup+1 {
		return peak
	}
	done := min(1, float64(step-warmup)/float64(total-1-warmup))
	switch schedule {
	case ScheduleLinear:
		return peak * (1 - (1-final)*done)
	case ScheduleCosine:
		return peak * (final + (1-final)*(1+math.Cos(math.Pi*done))/2)
	default:
		return peak
	}
}

// stepOptions returns the engine's options at a step of total.
func (o Optimizer) stepOptions(step, total int64) gpu.StepOptions {
	lr := scheduledRate(o.Schedule, o.LearningRate, o.FinalRatio, step, o.WarmupSteps, total)
	return gpu.StepOptions{
		LearningRate: lr, Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon,
		WeightDecay: o.WeightDecay, ClipNorm: o.ClipNorm,
	}
}
