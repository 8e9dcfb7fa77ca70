package trainer

import (
	"fmt"
	"slices"

	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// chooseAdvantage makes the estimator and checks that what it reads can be had.
func (t *trainer) chooseAdvantage() (err error) {
	name, options := t.cfg.Advantage.Name, t.cfg.Advantage.Options
	if t.estimator, err = advantage.New(name, options); err != nil {
		return err
	}
	for _, need := range advantage.Requires(name, options) {
		switch need {
		case "Group", "Tokens", "Baselines", "Values": // values: the configuration was checked for a critic
		case "Logprobs":
			t.needLogprobs = true
		default:
			return fmt.Errorf("advantage %s needs %s, which trajectories do not carry", name, need)
		}
	}
	return nil
}

// reads says whether the estimator is better for a field of its batch that it can do without.
func (t *trainer) reads(field string) bool {
	return slices.Contains(advantage.Improves(t.cfg.Advantage.Name), field)
}

// learnt is what the estimator knows from the batches so far; nil where that is nothing.
func (t *trainer) learnt() (*checkpoint.AdvantageState, error) {
	e, ok := t.estimator.(advantage.Stateful)
	if !ok {
		return nil, nil
	}
	state, err := e.State()
	if err != nil {
		return nil, fmt.Errorf("save what advantage %s has learnt: %w", e.Name(), err)
	}
	if state == nil {
		return nil, nil
	}
	return &checkpoint.AdvantageState{Name: e.Name(), State: state}, nil
}

// restoreLearnt gives the estimator what the one of the same name knew.
func (t *trainer) restoreLearnt(s *checkpoint.AdvantageState) error {
	if s == nil {
		return nil
	}
	e, ok := t.estimator.(advantage.Stateful)
	if !ok || s.Name != e.Name() {
		t.deps.Log.Warn("the advantage was changed: what the one before had learnt is forgotten", "before", s.Name, "now", t.estimator.Name())
		return nil
	}
	if err := e.Restore(s.State); err != nil {
		return fmt.Errorf("load what advantage %s has learnt: %w", s.Name, err)
	}
	return nil
}
