package advantage

import (
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/internal/perturb"
)

// options are the keys of all estimators and the arithmetic together, so that a test can say the same of many estimators.
type options struct {
	Gamma            float64 `default:"1"`
	Lambda           float64 `default:"1"`
	StepUnit         string  `default:"auto"`
	StepGamma        float64 `default:"1"`
	StepLambda       float64 `default:"1"`
	NormalizeProcess bool
	DivideByStd      bool    `default:"true"`
	StdEpsilon       float64 `default:"1e-6"`
	Single           string  `default:"zero"`
	Whiten           bool    `default:"true"`
	WhitenEpsilon    float64 `default:"1e-8"`
	StepCredit       string  `default:"return"`
	TokenCredit      string  `default:"uniform"`
	Anchor           string  `default:"observation"`
	StepWeight       float64 `default:"1"`
	TurnWeight       float64 `default:"1"`
	ProcessWeight    float64 `default:"5"`
	OutcomeWeight    float64 `default:"5"`
	GPGNorm          float64 `default:"1"`
	ZeroTail         bool    `default:"true"`
	Decay            float64 `default:"0.95"`
	EpisodeAgents    []string
	LengthPenalty    LengthPenalty
	Arithmetic
}

func defaultOptions() options {
	o := check.Default[options]()
	o.Arithmetic = DefaultArithmetic()
	return o
}

// keys are those of the named estimator, with the values of o.
func (o options) keys(name string, foreign ...Foreign) any {
	own := Keys(name, foreign...)
	if own != nil {
		perturb.Overlay(own, o, true)
	}
	return own
}

// newOf makes the named estimator under o.
func newOf(name string, o options, foreign ...Foreign) (Estimator, error) {
	e, err := NewAs(o.Arithmetic, name, o.keys(name, foreign...), foreign...)
	if err == nil && o.NormalizeProcess {
		e = NormalizeProcessOf(e)
	}
	return e, err
}
