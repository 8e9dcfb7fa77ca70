package gpu

import (
	"errors"
	"fmt"
	"math"
)

// RopeScaling is Llama 3's change of the rotary angles ("rope_type": "llama3"). Pairs that turn fewer than LowFreqFactor times
// within OriginalMaxPositions turn Factor times slower, pairs that turn more than HighFreqFactor times stay, and pairs between
// are interpolated.
type RopeScaling struct {
	// Factor is at least 1.
	Factor float64 `json:"factor"`
	// LowFreqFactor and HighFreqFactor are turns within OriginalMaxPositions; 0 < LowFreqFactor < HighFreqFactor.
	LowFreqFactor  float64 `json:"low_freq_factor"`
	HighFreqFactor float64 `json:"high_freq_factor"`
	// OriginalMaxPositions is the context's length before the change.
	OriginalMaxPositions int `json:"original_max_position_embeddings"`
}

func (r RopeScaling) validateScaling() error {
	var errs []error
	if !(r.Factor >= 1) || math.IsInf(r.Factor, 1) {
		errs = append(errs, fmt.Errorf("rope_scaling: factor is %g: must be at least 1", r.Factor))
	}
	if !(r.LowFreqFactor > 0) || !(r.HighFreqFactor > r.LowFreqFactor) || math.IsInf(r.HighFreqFactor, 1) {
		errs = append(errs, fmt.Errorf("rope_scaling: low_freq_factor %g and high_freq_factor %g: must be positive, and the first the smaller",
			r.LowFreqFactor, r.HighFreqFactor))
	}
	if r.OriginalMaxPositions <= 0 {
		errs = append(errs, fmt.Errorf("rope_scaling: original_max_position_embeddings is %d: must be positive", r.OriginalMaxPositions))
	}
	return errors.Join(errs...)
}

// RopeSpeeds are the angles, in radians a position, by which the pairs of a head turn, RopeScaling applied: a number for each
// of the AttentionDim/2 pairs. Pair j of a head is elements j and j + AttentionDim/2 (Su et al. 2021, in Hugging Face's
// layout).
func (c Config) RopeSpeeds() []float64 {
	half := c.AttentionDim() / 2
	out := make([]float64, half)
	for j := range out {
		out[j] = math.Pow(c.RopeTheta, -float64(j)/float64(half))
		if c.RopeScaling != nil {
			out[j] = c.RopeScaling.scaledAngle(out[j])
		}
	}
	return out
}

// scaledAngle is a pair's angle after the change.
func (r RopeScaling) scaledAngle(speed float64) float64 {
	turns := float64(r.OriginalMaxPositions) * speed / (2 * math.Pi)
	switch {
	case turns < r.LowFreqFactor:
		return speed / r.Factor
	case turns > r.HighFreqFactor:
		return speed
	}
	smooth := (turns - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
	return (1-smooth)*speed/r.Factor + smooth*speed
}
