package loss

import (
	"github.com/weir-rl/weir/internal/check"
)

// Off turns a setting off.
const Off = -1

// The policies that ratios are taken against.
const (
	OldProximal  = "proximal"  // the policy at the start of the step
	OldBehaviour = "behaviour" // the policy that sampled
)

// The levels at which ratios are taken.
const (
	LevelToken = "token"
	// A row's geometric mean, with the row's mean advantage.
	LevelSequence = "sequence"
	// A row's geometric mean, with each token's own advantage.
	LevelSequenceToken = "sequence-token"
)

// Shared has the keys that every stock loss has.
type Shared struct {
	// Aggregation of token losses.
	Aggregation Aggregation `koanf:"aggregation"`
	// Correction for tokens sampled by an older policy.
	Correction Correction `koanf:"correction"`

	// The fields from here on have no key, and in a run are false. The golden tests set them, and the fields of Aggregation and Correction
	// without keys, to compare with the arithmetic of other projects.

	// SumAllAdvantages lets the masked tokens' advantages into a row's mean at level sequence, as AReaL does for padded
	// rows. By default they are never read.
	SumAllAdvantages bool `koanf:"-"`
	// KeepNonFinite lets a loss that is not finite through. By default it is an error that names the row.
	KeepNonFinite bool `koanf:"-"`
}

// SharedKeys returns the keys themselves, so that [SharedOf] finds them in a loss's keys.
func (s *Shared) SharedKeys() *Shared { return s }

// SharedOf returns the shared keys among the keys of a loss; nil where it has no shared keys, as a loss from outside may.
func SharedOf(keys any) *Shared {
	if with, ok := keys.(interface{ SharedKeys() *Shared }); ok {
		return with.SharedKeys()
	}
	return nil
}

// Ratio has the key of losses that take a ratio of the current to an old policy.
type Ratio struct {
	// Old is the policy that ratios are taken against: proximal, the policy at the start of the step, or behaviour, the policy that
	// sampled.
	Old string `koanf:"old" default:"proximal" oneof:"proximal behaviour"`
}

// OldPolicy is Old.
func (r Ratio) OldPolicy() string { return r.Old }

// oldPolicyOf returns the policy that a loss with these keys takes ratios against: the policy at the start of the step if the keys have no
// OldPolicy. the one at the start of the step, where the keys do not say.
func oldPolicyOf(keys any) string {
	if with, ok := keys.(interface{ OldPolicy() string }); ok {
		return with.OldPolicy()
	}
	return OldProximal
}

// RatioBound has the key that bounds a ratio's logarithm.
type RatioBound struct {
	// LogRatioClamp bounds the log ratio before exp. -1 means none.
	LogRatioClamp float64 `koanf:"log_ratio_clamp" default:"20" above:"0" off:"-1"`
}

// Surrogate has the keys of losses of a ratio at a token's or a row's level.
type Surrogate struct {
	Shared     `koanf:",squash"`
	Ratio      `koanf:",squash"`
	RatioBound `koanf:",squash"`
	// Level of the ratio: token, sequence or sequence-token.
	Level string `koanf:"level" default:"token" oneof:"token sequence sequence-token"`
}

// Clip has the keys that bound a ratio to [1 - low, 1 + high].
type Clip struct {
	// ClipLow and ClipHigh bound the ratio to [1 - low, 1 + high]. A larger ClipHigh is DAPO's clip-higher. -1 means no bound.
	ClipLow  float64 `koanf:"clip_low" default:"0.2" above:"0" max:"1" off:"-1"`
	ClipHigh float64 `koanf:"clip_high" default:"0.2" above:"0" off:"-1"`
}

// PPO has the keys of ppo, decoupled_ppo, m2po and gspo.
type PPO struct {
	Surrogate `koanf:",squash"`
	Clip      `koanf:",squash"`
	// DualClip c bounds the loss of a negative advantage at c |A|; above 1. -1 means none.
	DualClip float64 `koanf:"dual_clip" default:"-1" above:"1" off:"-1"`
}

// GMPO has the keys of gmpo.
type GMPO struct {
	Shared `koanf:",squash"`
	Ratio  `koanf:",squash"`
	// ClipLow and ClipHigh bound the log ratio from below and above. -1 means no bound.
	ClipLow  float64 `koanf:"clip_low" default:"0.4" above:"0" off:"-1"`
	ClipHigh float64 `koanf:"clip_high" default:"0.4" above:"0" off:"-1"`
}

// Validate reports every fault: a geometric mean is of a whole row.
func (k GMPO) Validate() error {
	return check.All(check.Fields(k), check.OneOf("aggregation.mode", k.Aggregation.Mode, SeqMeanTokenSum))
}

// SAPO has the keys of sapo.
type SAPO struct {
	Surrogate `koanf:",squash"`
	// TauPositive and TauNegative are the steepness of the gate for positive and other advantages.
	TauPositive float64 `koanf:"tau_positive" default:"1" above:"0"`
	TauNegative float64 `koanf:"tau_negative" default:"1.05" above:"0"`
}

// CISPO has the keys of cispo.
type CISPO struct {
	Surrogate `koanf:",squash"`
	// ClipLow and ClipHigh bound the weight of the score function to [1 - low, 1 + high]. -1 means no bound.
	ClipLow  float64 `koanf:"clip_low" default:"-1" above:"0" off:"-1"`
	ClipHigh float64 `koanf:"clip_high" default:"4" above:"0" off:"-1"`
}

// ClipCov has the keys of clip_cov.
type ClipCov struct {
	Shared     `koanf:",squash"`
	Ratio      `koanf:",squash"`
	RatioBound `koanf:",squash"`
	Clip       `koanf:",squash"`
	// CovRatio is the share of tokens that is selected.
	CovRatio float64 `koanf:"cov_ratio" default:"2e-4" above:"0" max:"1"`
	// CovLow and CovHigh bound the covariance of tokens that may be selected.
	CovLow  float64 `koanf:"cov_low" default:"1"`
	CovHigh float64 `koanf:"cov_high" default:"5"`
}

// Validate reports every fault: there is something between the bounds.
func (k ClipCov) Validate() error {
	return check.All(check.Fields(k), check.That(k.CovLow < k.CovHigh, "cov_low", "%v: must be below cov_high (%v)", k.CovLow, k.CovHigh))
}

// KLCov has the keys of kl_cov.
type KLCov struct {
	Shared     `koanf:",squash"`
	Ratio      `koanf:",squash"`
	RatioBound `koanf:",squash"`
	// CovRatio is the share of tokens that is selected.
	CovRatio float64 `koanf:"cov_ratio" default:"2e-4" above:"0" max:"1"`
	// CovCoef multiplies the penalty of selected tokens.
	CovCoef float64 `koanf:"cov_coef" default:"1" above:"0"`
}

// Reinforce has the keys of reinforce, gpg, tis and masked_is.
type Reinforce struct {
	Shared `koanf:",squash"`
	Ratio  `koanf:",squash"`
	// KLTau multiplies the log ratio within the weight. -1 means none.
	KLTau float64 `koanf:"kl_tau" default:"-1" above:"0" off:"-1"`
}

// Distillation has the keys of ref_kl.
type Distillation struct {
	Shared     `koanf:",squash"`
	Ratio      `koanf:",squash"`
	RatioBound `koanf:",squash"`
	// AdvantageTau multiplies the advantage.
	AdvantageTau float64 `koanf:"advantage_tau" default:"1" above:"0"`
	// KLTau multiplies the squared log ratio. -1 means none.
	KLTau float64 `koanf:"kl_tau" default:"1e-3" above:"0" off:"-1"`
	// MaskLow is how far a token's probability may have fallen. -1 lets it fall without a bound.
	MaskLow float64 `koanf:"mask_low" default:"0.2" above:"0" max:"1" off:"-1"`
}

// Trust has the keys of dppo and ipo.
type Trust struct {
	Distillation `koanf:",squash"`
	// MaskHigh is how far a token's probability may have risen. -1 lets it rise without a bound.
	MaskHigh float64 `koanf:"mask_high" default:"0.2" above:"0" max:"1" off:"-1"`
}

// CrossEntropy has the keys of cross_entropy.
type CrossEntropy struct {
	Shared `koanf:",squash"`
}
