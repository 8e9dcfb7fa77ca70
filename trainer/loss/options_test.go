package loss

import "github.com/weir-rl/weir/internal/perturb"

// options are the keys of all losses together, so that a test can say the same of many losses. A zero value is the loss's default.
type options struct {
	Old                       string
	Level                     string
	ClipLow, ClipHigh         float64
	DualClip, LogRatioClamp   float64
	TauPositive, TauNegative  float64
	MaskLow, MaskHigh         float64
	AdvantageTau, KLTau       float64
	CovRatio, CovLow, CovHigh float64
	CovCoef                   float64
	Aggregation               Aggregation
	Correction                Correction
	SumAllAdvantages          bool
	KeepNonFinite             bool
}

// keys are those of the named loss, with the values of o that are not zero.
func (o options) keys(name string, foreign ...Foreign) any {
	own := Keys(name, foreign...)
	if own != nil {
		perturb.Overlay(own, o, false)
	}
	return own
}

// newOf makes the named loss under o.
func newOf(name string, o options, foreign ...Foreign) (Policy, error) {
	return New(name, o.keys(name, foreign...), foreign...)
}
