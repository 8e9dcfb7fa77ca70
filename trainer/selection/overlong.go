package selection

import "github.com/weir-rl/weir/internal/check"

// Overlong shapes the reward of long rollouts (DAPO, arXiv 2503.14476, equation 13): within Buffer tokens of the limit
// the reward falls linearly, by Factor at the limit and, unless Bounded, further beyond it.
//
//	reward += min(0, -(length - (Limit - Buffer)) / Buffer * Factor)
type Overlong struct {
	// Limit is the longest rollout, in action tokens; 0, the default, shapes nothing.
	Limit int `koanf:"limit" min:"0"`
	// Buffer before the limit.
	Buffer int `koanf:"buffer"`
	// Factor is the penalty at the limit.
	Factor float64 `koanf:"factor" default:"1" min:"0"`
	// Bounded keeps the penalty at Factor beyond the limit.
	Bounded bool `koanf:"bounded" default:"true"`
	// Mask takes rollouts that were cut off at a limit out of the loss instead: they are neither right nor wrong.
	Mask bool `koanf:"mask"`
}

// DefaultOverlong shapes nothing.
func DefaultOverlong() Overlong { return check.Default[Overlong]() }

// Validate reports every fault.
func (o Overlong) Validate() error {
	return check.All(
		check.Fields(o),
		check.That(o.Limit != 0 || o.Buffer >= 0, "buffer", "%d: must not be negative", o.Buffer),
		check.That(o.Limit <= 0 || o.Buffer > 0 && o.Buffer <= o.Limit, "buffer", "%d: must be between 1 and limit (%d)", o.Buffer, o.Limit),
	)
}

// Penalty is added to the reward of a rollout of length action tokens: 0 or less.
func (o Overlong) Penalty(length int) float64 {
	if o.Limit == 0 {
		return 0
	}
	over := float64(length-(o.Limit-o.Buffer)) / float64(o.Buffer)
	if o.Bounded {
		over = min(over, 1)
	}
	return -max(0, over) * o.Factor
}

// Masks reports whether a rollout leaves the loss.
func (o Overlong) Masks(cutOff bool) bool { return o.Mask && cutOff }
