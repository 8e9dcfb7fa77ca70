package loss

import (
	"math"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/stats"
)

// How Approximate makes the proximal policy's log-probabilities without a forward pass (A-3PO, as in AReaL).
const (
	ApproximateLogLinear = "loglinear" // log mu + alpha (log pi - log mu)
	ApproximateLinear    = "linear"    // log((1 - alpha) mu + alpha pi)
	ApproximateRollout   = "rollout"   // log mu
)

// Approximate places the proximal policy, a version behind current, between the behaviour policy that sampled a token, of version v, and
// the current policy:
//
//	alpha = clip((current - 1 - v) / (current - v), 0, 1), and 0 where v >= current or v < 0
//
// out may be behaviour.
func Approximate(method string, current int64, versions []int32, logprobs, behaviour, out []float64) error {
	if err := check.OneOf("method", method, ApproximateLogLinear, ApproximateLinear, ApproximateRollout); err != nil {
		return err
	}
	n := len(behaviour)
	if err := stats.CheckLength("Versions", versions, n); err != nil {
		return err
	}
	for _, f := range []field{{"Logprobs", logprobs}, {"out", out}} {
		if err := stats.CheckLength(f.name, f.x, n); err != nil {
			return err
		}
	}
	for t, old := range behaviour {
		alpha := 0.0
		if v := int64(versions[t]); v >= 0 && v < current {
			alpha = min(max(float64(current-1-v)/float64(current-v), 0), 1)
		}
		switch method {
		case ApproximateLogLinear:
			out[t] = old + alpha*(logprobs[t]-old)
		case ApproximateLinear:
			out[t] = math.Log((1-alpha)*math.Exp(old) + alpha*math.Exp(logprobs[t]) + 1e-10)
		default:
			out[t] = old
		}
	}
	return nil
}
