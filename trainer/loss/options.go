package loss

import "github.com/weir-rl/weir/internal/check"

// Off turns off an option whose zero value means the algorithm's own default.
const Off = -1

// Which policy ratios are taken against.
const (
	OldProximal  = "proximal"  // the policy at the start of the step
	OldBehaviour = "behaviour" // the policy that sampled
)

// At which level ratios are taken.
const (
	LevelToken = "token"
	// A row's geometric mean, with the row's mean advantage.
	LevelSequence = "sequence"
	// A row's geometric mean, with each token's own advantage.
	LevelSequenceToken = "sequence-token"
)

// Options choose between the forms that losses have in the field. Each loss reads those named in its
// docs/algorithms.md entry. The zero value of every option is the algorithm's own default, which Resolve
// shows; -1 turns one off.
type Options struct {
	// Old is what ratios are taken against: proximal or behaviour.
	Old string `koanf:"old"`
	// Level of the ratio: token, sequence or sequence-token.
	Level string `koanf:"level"`
	// ClipLow and ClipHigh bound the ratio to [1 - low, 1 + high]. A larger ClipHigh is DAPO's clip-higher.
	ClipLow  float64 `koanf:"clip_low"`
	ClipHigh float64 `koanf:"clip_high"`
	// DualClip c bounds the loss of a negative advantage at c |A|; above 1. -1 means none.
	DualClip float64 `koanf:"dual_clip"`
	// LogRatioClamp bounds the log ratio before exp. -1 means none.
	LogRatioClamp float64 `koanf:"log_ratio_clamp"`

	// TauPositive and TauNegative are the steepness of sapo's gate for positive and other advantages.
	TauPositive float64 `koanf:"tau_positive"`
	TauNegative float64 `koanf:"tau_negative"`
	// MaskLow and MaskHigh are how far a token's probability may have fallen or risen in dppo, ipo and ref_kl.
	MaskLow  float64 `koanf:"mask_low"`
	MaskHigh float64 `koanf:"mask_high"`
	// AdvantageTau multiplies the advantage in dppo, ipo and ref_kl.
	AdvantageTau float64 `koanf:"advantage_tau"`
	// KLTau multiplies the squared log ratio in dppo, ipo and ref_kl, and the log ratio within the weight of
	// reinforce and masked_is. -1 means none.
	KLTau float64 `koanf:"kl_tau"`
	// CovRatio is the share of tokens that clip_cov or kl_cov selects; CovLow and CovHigh bound the covariance of
	// those that clip_cov may; CovCoef multiplies kl_cov's penalty.
	CovRatio float64 `koanf:"cov_ratio"`
	CovLow   float64 `koanf:"cov_low"`
	CovHigh  float64 `koanf:"cov_high"`
	CovCoef  float64 `koanf:"cov_coef"`

	// Aggregation of token losses.
	Aggregation Aggregation `koanf:"aggregation"`
	// Correction for tokens sampled by an older policy.
	Correction Correction `koanf:"correction"`

	// The options from here on have no key, and in a run their defaults: by them, and by those of Aggregation and Correction
	// that have none, the golden tests compare with the arithmetic of other projects.

	// SumAllAdvantages lets the masked tokens' advantages into a row's mean at level sequence, as AReaL does for padded
	// rows. By default they are never read.
	SumAllAdvantages bool `koanf:"-"`
	// KeepNonFinite lets a loss that is not finite through. By default it is an error that names the row.
	KeepNonFinite bool `koanf:"-"`
}

// Validate reports every fault of resolved options.
func (o Options) Validate() error {
	return check.All(
		check.OneOf("old", o.Old, OldProximal, OldBehaviour),
		check.OneOf("level", o.Level, LevelToken, LevelSequence, LevelSequenceToken),
		check.PositiveOr(Off, "clip_low", o.ClipLow),
		check.PositiveOr(Off, "clip_high", o.ClipHigh),
		check.PositiveOr(Off, "log_ratio_clamp", o.LogRatioClamp),
		check.PositiveOr(Off, "tau_positive", o.TauPositive),
		check.PositiveOr(Off, "tau_negative", o.TauNegative),
		check.ShareOr(Off, "mask_low", o.MaskLow),
		check.ShareOr(Off, "mask_high", o.MaskHigh),
		check.PositiveOr(Off, "advantage_tau", o.AdvantageTau),
		check.PositiveOr(Off, "kl_tau", o.KLTau),
		check.ShareOr(Off, "cov_ratio", o.CovRatio),
		check.PositiveOr(Off, "cov_coef", o.CovCoef),
		check.That(o.CovLow < o.CovHigh, "cov_low", "%v: must be below cov_high (%v)", o.CovLow, o.CovHigh),
		check.That(o.DualClip > 1 || o.DualClip == Off, "dual_clip", "%v: must exceed 1, or be -1 for off", o.DualClip),
		check.Section("aggregation", o.Aggregation.Validate()),
		check.Section("correction", o.Correction.Validate()),
	)
}

// over fills o's zero values from d.
func (o Options) over(d Options) Options {
	o.Old, o.Level = or(o.Old, d.Old), or(o.Level, d.Level)
	o.ClipLow, o.ClipHigh = or(o.ClipLow, d.ClipLow), or(o.ClipHigh, d.ClipHigh)
	o.DualClip, o.LogRatioClamp = or(o.DualClip, d.DualClip), or(o.LogRatioClamp, d.LogRatioClamp)
	o.TauPositive, o.TauNegative = or(o.TauPositive, d.TauPositive), or(o.TauNegative, d.TauNegative)
	o.MaskLow, o.MaskHigh = or(o.MaskLow, d.MaskLow), or(o.MaskHigh, d.MaskHigh)
	o.AdvantageTau, o.KLTau = or(o.AdvantageTau, d.AdvantageTau), or(o.KLTau, d.KLTau)
	o.CovRatio, o.CovCoef = or(o.CovRatio, d.CovRatio), or(o.CovCoef, d.CovCoef)
	o.CovLow, o.CovHigh = or(o.CovLow, d.CovLow), or(o.CovHigh, d.CovHigh)
	o.Aggregation.Mode = or(o.Aggregation.Mode, d.Aggregation.Mode)
	o.Correction = o.Correction.over(d.Correction)
	return o
}

func or[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}
