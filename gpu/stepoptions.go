package gpu

import (
	"errors"
	"fmt"
)

// Validate reports every setting that AdamW has no meaning for.
func (o StepOptions) Validate() error {
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
