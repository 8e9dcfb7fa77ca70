package loss

import (
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/stats"
)

// Duration weighs actions by their wall-clock time. In asynchronous collection a fast action brings its trajectory in sooner and more
// often: the weights keep slow actions from being drowned out (Yang et al., "Reinforcement learning for machine learning engineering
// agents", 2025, section 4.1):
//
//	grad = sum_k (dt_k / mean dt) A_k grad log pi(a_k)
type Duration struct {
	// Share blends the weight with 1: 0, the default, is off, 1 is the paper's weight.
	Share float64 `koanf:"share" min:"0" max:"1"`
	// Floor is the shortest duration that an action counts as, in seconds, so that instant actions still count.
	Floor float64 `koanf:"floor" default:"0.01" above:"0"`
	// Cap bounds a weight, before the mean is brought back to 1.
	Cap float64 `koanf:"cap" default:"10" min:"1"`
}

// DefaultDuration is off.
func DefaultDuration() Duration { return check.Default[Duration]() }

// Validate reports every fault.
func (d Duration) Validate() error { return check.Fields(d) }

// Weights fills out with a weight for each token, for Batch.Weights, from the duration of the token's action, in seconds. It is called once
// over a whole step: the weights' mean over action tokens is 1.
func (d Duration) Weights(offsets []int, mask []uint8, seconds, out []float64) error {
	if err := stats.CheckRows(offsets, mask); err != nil {
		return err
	}
	for _, f := range []field{{"seconds", seconds}, {"out", out}} {
		if err := stats.CheckLength(f.name, f.x, len(mask)); err != nil {
			return err
		}
	}
	if err := stats.CheckFinite("seconds", seconds, offsets, mask); err != nil {
		return err
	}
	for i := range len(offsets) - 1 {
		for t := offsets[i]; t < offsets[i+1]; t++ {
			if mask[t] != 0 && seconds[t] < 0 {
				return stats.Fault("seconds", i, "token %d is %v: a duration is not negative", t-offsets[i], seconds[t])
			}
			out[t] = max(seconds[t], d.Floor)
		}
	}
	mean := stats.Mean(out, mask, 0)
	for t, v := range out {
		out[t] = min(stats.Divide(v, mean), d.Cap)
	}
	mean = stats.Mean(out, mask, 0)
	for t, v := range out {
		out[t] = 1 - d.Share + d.Share*stats.Divide(v, mean)
		if mask[t] == 0 {
			out[t] = 0
		}
	}
	return nil
}
