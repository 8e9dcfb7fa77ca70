package advantage

import (
	"errors"
	"fmt"
)

// Foreign is an estimator from outside this package: a configuration that has it (learner.Advantage.Foreign) takes it by its
// name in trainer.advantage.name, as it takes a stock one.
type Foreign struct {
	// Name in configuration: not empty, and not that of a stock estimator.
	Name string
	// Make returns the estimator under the run's options, which have been validated. It is called at each start of a trainer.
	Make func(o Options) (Estimator, error)
	// Facts are what a trainer must know of the estimator, under all options.
	Facts Facts
}

// PerGroup is a foreign estimator that compares the rewards of a group's trajectories, each the sum of the trajectory's
// rewards at action tokens, and fills one advantage for each of them, which goes to all of its action tokens.
// Trajectories without an action token are left out. An advantage that is not finite is an error that names the
// rewards it came from.
func PerGroup(name string, compare func(rewards, advantages []float64)) Foreign {
	formula := func(_ *outcome, g group) error {
		compare(g.rewards, g.advantages)
		return g.finite(name)
	}
	return Foreign{
		Name: name,
		Make: func(o Options) (Estimator, error) {
			if compare == nil {
				return nil, errors.New("what compares a group is nil")
			}
			return groupwise(formula)(name, o)
		},
		Facts: Facts{Requires: []string{"Group"}, Reads: []string{
			"length_penalty.input_tokens", "length_penalty.output_tokens", "length_penalty.turns",
		}},
	}
}

// make is the builder's constructor.
func (f Foreign) make(_ string, o Options) (Estimator, error) {
	e, err := f.Make(o)
	if err == nil && e == nil {
		err = errors.New("Foreign.Make returned neither an estimator nor an error")
	}
	return e, err
}

// validate reports what a name cannot be, among those that are taken.
func (f Foreign) validate(taken map[string]builder) error {
	switch _, known := taken[f.Name]; {
	case f.Name == "":
		return errors.New("a foreign advantage has no name: set Foreign.Name")
	case known:
		return fmt.Errorf("advantage %s: there are two of this name: give the foreign one another", f.Name)
	case f.Make == nil:
		return fmt.Errorf("advantage %s: Foreign.Make is nil", f.Name)
	}
	return nil
}
