package advantage

import "github.com/weir-rl/weir/trainer/stats"

// NormalizeProcessOf is an estimator whose process rewards, which stand before a trajectory's last action token, are divided by their
// largest return in size over the batch before it reads them (PRIME, Agent-R1).
func NormalizeProcessOf(e Estimator) Estimator { return &normalized{Estimator: e} }

// normalized scales the process rewards (PRIME, as in Agent-R1) before another estimator reads them.
type normalized struct {
	Estimator
	layout layout
	splitter
	scaled, rewards []float64
}

func (e *normalized) Estimate(b *Batch, out *Result) error {
	if err := checkRewards(b); err != nil {
		return err
	}
	if err := e.layout.buildRows(b); err != nil {
		return err
	}
	process, outcome, err := e.splitRewards(b, &e.layout)
	if err != nil {
		return err
	}
	e.scaled = append(e.scaled[:0], process...)
	stats.Mask(e.scaled, b.Mask)
	if err := e.layout.normalizeProcess(b.Offsets, e.scaled); err != nil {
		return err
	}
	scaled := *b
	if b.ProcessRewards != nil {
		scaled.ProcessRewards = e.scaled
		return e.Estimator.Estimate(&scaled, out)
	}
	e.rewards = stats.Resize(e.rewards, len(outcome))
	for t, r := range outcome {
		e.rewards[t] = r + e.scaled[t]
	}
	scaled.Rewards = e.rewards
	return e.Estimator.Estimate(&scaled, out)
}

// State is the inner estimator's, nil where it keeps no state.
func (e *normalized) State() ([]byte, error) {
	if s, ok := e.Estimator.(Stateful); ok {
		return s.State()
	}
	return nil, nil
}

// Restore passes a state on to the inner estimator.
func (e *normalized) Restore(state []byte) error {
	if s, ok := e.Estimator.(Stateful); ok {
		return s.Restore(state)
	}
	return nil
}
