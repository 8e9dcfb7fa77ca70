package rewards

import (
	"errors"
	"fmt"
	"math"
)

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
	var faults []error
	if !finite(s.Bias) {
		faults = append(faults, fmt.Errorf("bias: %v: must be a number", s.Bias))
	}
	if !finite(s.Scale) || s.Scale == 0 {
		faults = append(faults, fmt.Errorf("scale: %v: must be a number, and not 0", s.Scale))
	}
	if !finite(s.Clip) || s.Clip < 0 {
		faults = append(faults, fmt.Errorf("clip: %v: must not be negative", s.Clip))
	}
	return errors.Join(faults...)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Apply shapes one reward.
func (s Shape) Apply(r float64) float64 {
	r = (r + s.Bias) * s.Scale
	if s.Clip > 0 {
		r = min(max(r, -s.Clip), s.Clip)
	}
	return r
}
