package advantage

import (
	"errors"
	"fmt"
)

// Foreign is an estimator from outside this package: a configuration that has it (learner.Advantage.Foreign) selects it by its name in
// trainer.advantage.name, like a stock estimator.
type Foreign struct {
	// Name in configuration: not empty, and not the name of a stock estimator.
	Name string
	// Keys returns a new pointer to a struct of the estimator's own keys with their defaults. The struct's fields have the tag koanf, with
	// the key's name in the section trainer.advantage; the tags min, max and oneof bound their values, and a method Validate() error is
	// called too. Nil: the estimator has no key.
	Keys func() any
	// Make returns the estimator under the run's keys: the struct of Keys with the configured values, which have been validated; nil where
	// Keys is nil. It is called at each start of a trainer.
	Make func(keys any) (Estimator, error)
	// Facts are the facts that a trainer needs about the estimator, whatever its keys.
	Facts Facts
}

// PerGroup is a foreign estimator that compares the rewards of a group's trajectories, each the sum of the trajectory's rewards at action
// tokens, and fills an advantage for each trajectory, which goes to all of its action tokens. Trajectories without an action token are left
// out. An advantage that is not finite is an error that names the rewards it came from. The estimator has the key length_penalty, like the
// stock estimators.
func PerGroup(name string, compare func(rewards, advantages []float64)) Foreign {
	if compare == nil {
		return PerGroupWith[struct{}](name, struct{}{}, nil)
	}
	return PerGroupWith(name, struct{}{}, func(_ struct{}, rewards, advantages []float64) { compare(rewards, advantages) })
}

// PerGroupWith is PerGroup of an estimator with keys of its own beside: the fields of K that have the tag koanf. defaults are their values
// before anything sets them.
func PerGroupWith[K any](name string, defaults K, compare func(keys K, rewards, advantages []float64)) Foreign {
	return Foreign{
		Name: name,
		Keys: func() any { return &perGroup[K]{Own: defaults} },
		Make: func(keys any) (Estimator, error) {
			k, ok := keys.(*perGroup[K])
			switch {
			case compare == nil:
				return nil, errors.New("what compares a group is nil")
			case !ok:
				return nil, fmt.Errorf("the keys are a %T: want a %T", keys, k)
			}
			return newOutcome(name, DefaultArithmetic(), Grouped{Comparing: k.Comparing}, func(_ *outcome, g group) error {
				compare(k.Own, g.rewards, g.advantages)
				return g.checkFinite(name)
			}), nil
		},
		Facts: Facts{Requires: []string{"Group"}},
	}
}

// perGroup are the keys of PerGroupWith.
type perGroup[K any] struct {
	Own       K `koanf:",squash"`
	Comparing `koanf:",squash"`
}

// stockBuilder returns the estimator's builder in the form of a stock estimator.
func (f Foreign) stockBuilder() builder {
	return builder{
		keys: func() any {
			if f.Keys == nil {
				return nil
			}
			return f.Keys()
		},
		make: func(_ string, keys any, _ Arithmetic) (Estimator, error) {
			e, err := f.Make(keys)
			if err == nil && e == nil {
				err = errors.New("Foreign.Make returned neither an estimator nor an error")
			}
			return e, err
		},
		facts: func(any) Facts { return f.Facts },
	}
}

// checkForeign returns an error for a name that is empty or taken, and for a missing Make.
func (f Foreign) checkForeign(taken map[string]builder) error {
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
