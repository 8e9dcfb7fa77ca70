package rewards

import "github.com/weir-rl/weir/internal/check"

// Shape moves and scales a reward, then keeps it within bounds:
//
//	y = clamp((r + Bias) Scale, -Clip, Clip)
type Shape struct {
	// Bias is added first. Defaults to 0.
	Bias float64 `koanf:"bias"`
	// Scale multiplies. Defaults to 1.
	Scale float64 `koanf:"scale"`
	// Clip bounds the size. 0 means no bound.
	Clip float64 `koanf:"clip"`
}

// DefaultShape changes nothing.
func DefaultShape() Shape { return Shape{Scale: 1} }

// Validate reports every fault.
func (s Shape) Validate() error {
	return check.All(
		check.Finite("bias", s.Bias),
		check.Finite("scale", s.Scale),
		check.That(s.Scale != 0, "scale", "%v: must not be 0", s.Scale),
		check.NotNegative("clip", s.Clip),
	)
}

// Apply shapes a reward.
func (s Shape) Apply(r float64) float64 {
	r = (r + s.Bias) * s.Scale
	if s.Clip > 0 {
		r = min(max(r, -s.Clip), s.Clip)
	}
	return r
}
