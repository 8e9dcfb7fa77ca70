package torch

import (
	"errors"
	"fmt"
	"math"

	"github.com/weir-rl/weir/gpu"
)

// stepped reads step's answer.
func stepped(f *frame) (gpu.StepStats, error) {
	var answer struct {
		// Norm is absent where it is not finite, which JSON cannot say.
		Norm    *float64 `json:"norm"`
		Skipped bool     `json:"skipped"`
	}
	if err := f.read(&answer); err != nil {
		return gpu.StepStats{}, err
	}
	stats := gpu.StepStats{GradNorm: math.NaN(), Skipped: answer.Skipped}
	if answer.Norm != nil {
		stats.GradNorm = *answer.Norm
	}
	return stats, nil
}

func checkStep(o gpu.StepOptions) error {
	var errs []error
	bad := func(ok bool, name string, v float64, rule string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %g: must be %s", name, v, rule))
		}
	}
	bad(o.LearningRate >= 0, "learning rate", o.LearningRate, "0 or more")
	bad(o.ValueLearningRate >= 0, "value learning rate", o.ValueLearningRate, "0 or more")
	bad(o.Beta1 >= 0 && o.Beta1 < 1, "beta1", o.Beta1, "in [0, 1)")
	bad(o.Beta2 >= 0 && o.Beta2 < 1, "beta2", o.Beta2, "in [0, 1)")
	bad(o.Epsilon > 0, "epsilon", o.Epsilon, "positive")
	bad(o.WeightDecay >= 0, "weight decay", o.WeightDecay, "0 or more")
	bad(o.ClipNorm >= 0, "clip norm", o.ClipNorm, "0 or more")
	return errors.Join(errs...)
}
