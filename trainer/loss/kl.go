package loss

import (
	"math"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/stats"
)

// Where the KL term goes.
const (
	KLInLoss   = "loss"
	KLInReward = "reward"
)

// KL is the penalty for leaving the reference policy, estimated at the sampled token (Schulman,
// "Approximating KL divergence", 2020). With d = log pi - log ref:
//
//	k1 = d    abs = |d|    k2 = d^2 / 2    k3 = exp(-d) - 1 + d
type KL struct {
	// Kind is k1, abs, k2 or k3. A "+" after it keeps the value and takes k2's gradient, the unbiased gradient of the reverse KL
	// (straight-through).
	Kind string `koanf:"kind" default:"k3"`
	// Coef multiplies the term. 0, the default, is none.
	Coef float64 `koanf:"coef" min:"0"`
	// In is loss or reward.
	In string `koanf:"in" default:"loss" oneof:"loss reward"`
	// LogClamp bounds d before exp, in k3 only. -1 means none.
	LogClamp float64 `koanf:"log_clamp" default:"20" above:"0" off:"-1"`
	// Clamp bounds the estimate. -1 means none.
	Clamp float64 `koanf:"clamp" default:"10" above:"0" off:"-1"`
	// ClampAll bounds every kind's estimate (AReaL), not only k3's (verl).
	ClampAll bool `koanf:"clamp_all"`
	// Target and Horizon adapt the coefficient to keep the measured KL near Target, in nats, over about Horizon
	// trajectories (arXiv 1909.08593, equation 3); a step changes it by a fifth at most. Target 0, the default, keeps it fixed.
	Target  float64 `koanf:"target" min:"0"`
	Horizon float64 `koanf:"horizon" default:"10000"`
}

// DefaultKL has no penalty.
func DefaultKL() KL { return check.Default[KL]() }

// Unread returns the reason why nothing depends on a key of the section, beginning with the other key that causes it; "" if something does.
func (k KL) Unread(key string) string {
	kind := strings.TrimSuffix(k.Kind, "+")
	switch {
	case key != "coef" && k.Coef == 0:
		return "coef is 0"
	case (key == "target" || key == "horizon") && k.In != KLInReward:
		return "in is " + k.In + ": the coefficient adapts in rewards alone"
	case key == "horizon" && k.Target == 0:
		return "target is 0"
	case key == "log_clamp" && kind != "k3", key == "clamp" && kind != "k3" && !k.ClampAll:
		return "kind is " + k.Kind
	case key == "clamp_all" && kind == "k3":
		return "kind is " + k.Kind + ", whose estimate is bounded all the same"
	}
	return ""
}

// Validate reports every fault.
func (k KL) Validate() error {
	return check.All(
		check.OneOf("kind", strings.TrimSuffix(k.Kind, "+"), "k1", "abs", "k2", "k3"),
		check.Fields(k),
		check.That(k.Horizon > 0 || k.Horizon == 0 && k.Target == 0, "horizon", "%v: must be positive", k.Horizon),
	)
}

// At is the estimate at a token and its derivative by the log-probability.
func (k *KL) At(logprob, reference float64) (value, slope float64) {
	e := k.newEstimator()
	return e.estimateAt(logprob, reference)
}

// estimator is a KL made ready for many tokens.
type estimator struct {
	kind            string
	straight        bool
	logClamp, clamp float64
}

func (k *KL) newEstimator() estimator {
	kind, straight := strings.CutSuffix(k.Kind, "+")
	e := estimator{kind: kind, straight: straight, logClamp: k.LogClamp, clamp: Off}
	if kind == "k3" || k.ClampAll {
		e.clamp = k.Clamp
	}
	return e
}

func (e *estimator) estimateAt(logprob, reference float64) (value, slope float64) {
	d := logprob - reference
	switch e.kind {
	case "abs":
		value, slope = math.Abs(d), signOf(d)
	case "k2":
		value, slope = d*d/2, d
	case "k3":
		value, slope = e.boundedK3(d)
	default:
		value, slope = d, 1
	}
	if e.clamp > 0 && math.Abs(value) > e.clamp {
		value, slope = math.Copysign(e.clamp, value), 0
	}
	if e.straight {
		slope = d
	}
	return value, slope
}

// boundedK3 returns exp(-d) - 1 + d with d within its bounds.
func (e *estimator) boundedK3(d float64) (value, slope float64) {
	if e.logClamp > 0 && math.Abs(d) > e.logClamp {
		bound := math.Copysign(e.logClamp, d)
		return math.Exp(-bound) - 1 + bound, 0
	}
	ratio := math.Exp(-d)
	return ratio - 1 + d, 1 - ratio
}

func signOf(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	default:
		return 0
	}
}

// AddLoss adds coef * aggregate(KL) to the loss and its gradient.
func (k *KL) AddLoss(coef float64, a Aggregation, b *Batch, out *Result) error {
	if err := stats.CheckRows(b.Offsets, b.Mask); err != nil {
		return err
	}
	for _, f := range []field{{"Logprobs", b.Logprobs}, {"out.Grad", out.Grad}} {
		if err := stats.CheckLength(f.name, f.x, len(b.Mask)); err != nil {
			return err
		}
	}
	if err := stats.CheckLength("Reference", b.Reference, len(b.Mask)); err != nil {
		return err
	}
	if out.Metrics == nil {
		out.Metrics = Metrics{}
	}
	d := a.withCounts(b.Counts, b.Offsets, b.Mask)
	e := k.newEstimator()
	sum, count := 0.0, 0
	for i := range len(b.Offsets) - 1 {
		lo, hi := b.Offsets[i], b.Offsets[i+1]
		n := stats.Count(b.Mask[lo:hi])
		if n == 0 {
			out.Loss += d.emptyRowLoss(out.Grad[lo:hi])
			continue
		}
		scale, row := coef*d.rowScale(n), 0.0
		for t := lo; t < hi; t++ {
			if b.Mask[t] == 0 {
				continue
			}
			value, slope := e.estimateAt(b.Logprobs[t], b.Reference[t])
			row += value
			out.Grad[t] += scale * slope
		}
		if !stats.Finite(row) {
			return firstFault(i, b, []field{{"Logprobs", b.Logprobs}, {"Reference", b.Reference}})
		}
		out.Loss += scale * row
		sum, count = sum+row, count+n
	}
	out.Metrics["kl"] = Mean{sum, float64(count)}
	return nil
}

// Penalize subtracts coef * KL from the reward of each action token and returns the mean over trajectories of their mean KL, for Adapt.
// trajectory is the trajectory of each row, from 0; nil is a trajectory a row. Trajectories without an action token count as 0.
// out may be rewards itself.
func (k *KL) Penalize(
	coef float64, offsets []int, mask []uint8, trajectory []int, rewards, logprobs, reference, out []float64,
) (float64, error) {
	if err := stats.CheckRows(offsets, mask); err != nil {
		return 0, err
	}
	for _, f := range []field{{"Rewards", rewards}, {"Logprobs", logprobs}, {"Reference", reference}, {"out", out}} {
		if err := stats.CheckLength(f.name, f.x, len(mask)); err != nil {
			return 0, err
		}
	}
	e := k.newEstimator()
	sums, counts := make([]float64, countTrajectories(offsets, trajectory)), make([]int, countTrajectories(offsets, trajectory))
	for i := range len(offsets) - 1 {
		sum, n := 0.0, 0
		for t := offsets[i]; t < offsets[i+1]; t++ {
			out[t] = rewards[t]
			if mask[t] == 0 {
				continue
			}
			value, _ := e.estimateAt(logprobs[t], reference[t])
			out[t] -= coef * value
			sum += value
			n++
		}
		if !stats.Finite(sum) {
			b := &Batch{Offsets: offsets, Mask: mask}
			return 0, firstFault(i, b, []field{{"Logprobs", logprobs}, {"Reference", reference}})
		}
		whole := i
		if trajectory != nil {
			whole = trajectory[i]
		}
		sums[whole] += sum
		counts[whole] += n
	}
	mean := 0.0
	for i, n := range counts {
		if n > 0 {
			mean += sums[i] / float64(n)
		}
	}
	return mean / float64(len(counts)), nil
}

// countTrajectories is the number of trajectories of rows.
func countTrajectories(offsets, trajectory []int) int {
	if len(trajectory) == 0 {
		return len(offsets) - 1
	}
	return slices.Max(trajectory) + 1
}

// Adapt is the coefficient after a step over n trajectories whose KL was measured:
//
//	coef *= 1 + clip(measured/target - 1, -0.2, 0.2) n / horizon
//
// Beyond five horizons it turns negative, and the penalty into a reward: [Objective.PenalizeRewards] counts a horizon of a step at most.
func (k *KL) Adapt(coef, measured, n float64) float64 {
	if k.Target == 0 {
		return coef
	}
	e := min(max(measured/k.Target-1, -0.2), 0.2)
	return coef * (1 + e*n/k.Horizon)
}
