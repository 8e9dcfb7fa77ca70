package goldentest

import (
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/internal/perturb"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/loss"
)

// estimatorKeys are the keys of all estimators and the arithmetic of the authors' code, under the authors' defaults: an estimator
// takes those that it has.
type estimatorKeys struct {
	Gamma         float64 `default:"1"`
	Lambda        float64 `default:"1"`
	StepUnit      string  `default:"auto"`
	StepGamma     float64 `default:"1"`
	StepLambda    float64 `default:"1"`
	DivideByStd   bool    `default:"true"`
	StdEpsilon    float64 `default:"1e-6"`
	Single        string  `default:"zero"`
	Whiten        bool    `default:"true"`
	WhitenEpsilon float64 `default:"1e-8"`
	StepCredit    string  `default:"return"`
	TokenCredit   string  `default:"uniform"`
	ProcessWeight float64 `default:"5"`
	OutcomeWeight float64 `default:"5"`
	GPGNorm       float64 `default:"1"`
	ZeroTail      bool    `default:"true"`
	Decay         float64 `default:"0.95"`
	EpisodeAgents []string
	LengthPenalty advantage.LengthPenalty
	advantage.Arithmetic
}

func defaultEstimatorKeys() estimatorKeys {
	k := check.Default[estimatorKeys]()
	k.Arithmetic = advantage.DefaultArithmetic()
	return k
}

// newEstimator makes the named estimator as a run does, but for the arithmetic.
func newEstimator(name string, k estimatorKeys) (advantage.Estimator, error) {
	own := advantage.Keys(name)
	perturb.Overlay(own, k, true)
	return advantage.NewAs(k.Arithmetic, name, own)
}

// lossKeys are the keys of all losses, and the fields without a key that have the authors' arithmetic: a loss takes those that it has. A
// zero value is the loss's default.
type lossKeys struct {
	Old, Level              string
	ClipLow, ClipHigh       float64
	DualClip, LogRatioClamp float64
	TauPositive             float64
	TauNegative             float64
	MaskLow, MaskHigh       float64
	AdvantageTau, KLTau     float64
	CovRatio                float64
	CovLow, CovHigh         float64
	CovCoef                 float64
	Aggregation             loss.Aggregation
	Correction              loss.Correction
	SumAllAdvantages        bool
	KeepNonFinite           bool
}

// newLoss makes the named loss as a run does.
func newLoss(name string, k lossKeys) (loss.Policy, error) {
	own := loss.Keys(name)
	perturb.Overlay(own, k, false)
	return loss.New(name, own)
}
