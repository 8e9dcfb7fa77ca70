package loss

import (
	"cmp"
	"math"
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/stats"
)

// How importance weights are taken from the log ratios d of a row.
const (
	WeightNone      = "none"
	WeightToken     = "token"     // exp(d_t)
	WeightSequence  = "sequence"  // exp(sum d): the whole row's ratio
	WeightGeometric = "geometric" // exp(mean d)
)

// The policy that stands over the behaviour policy in d.
const (
	OfProximal = "proximal" // three policies: fixed for the step
	OfCurrent  = "current"  // two policies: the ratio follows the policy, without gradient
)

// Correction weighs and rejects tokens by d = log(pi / mu): how far the policy is from the policy that sampled.
type Correction struct {
	// Of is pi: proximal or current.
	Of string `koanf:"of" default:"proximal" oneof:"proximal current"`
	// Weight multiplies the loss: none, token, sequence or geometric.
	Weight string `koanf:"weight" default:"none" oneof:"none token sequence geometric"`
	// Cap truncates weights from above. -1 means none.
	Cap float64 `koanf:"cap" default:"-1" above:"0" off:"-1"`
	// LogBound bounds log weights before exp, and d in rules. -1 means none.
	LogBound float64 `koanf:"log_bound" default:"-1" above:"0" off:"-1"`
	// Normalize divides the weights by their mean over the minibatch (over rows for sequence and geometric).
	Normalize bool `koanf:"normalize"`
	// Rules reject or clamp, each "ACTION OVER METRIC LOWER UPPER" as in "mask token ratio - 5". ACTION is mask (drop the token, or the
	// row), zero (give it weight 0, but keep it in its row's ratio) or clamp (its weight). OVER is token, or sum, mean, max or min over the
	// row. METRIC is ratio, k1 (d), k2 (d^2/2) or k3 (exp(-d)-1+d), "-k1" and "-k3" being k1 and k3 of -d. "-" is no bound. A row's ratios
	// are aggregated as logarithms. All rules must hold. ["none"] is no rule.
	Rules []string `koanf:"rules"`
	// M2Threshold drops the tokens with the largest d^2 until the mean of the rest, over the minibatch, is below it
	// (M2PO, arXiv 2510.01161). -1 means none.
	M2Threshold float64 `koanf:"m2_threshold" default:"-1" above:"0" off:"-1"`
	// DropRejected takes rejected tokens, and rows left without any, out of the policy loss's denominators too, as verl
	// does. By default they still count, so that rejecting some does not magnify the others (AReaL).
	DropRejected bool `koanf:"drop_rejected"`
	// MeanEpsilon is added to a row's length in means over it (verl: 1e-8). Defaults to 0. It has no key: see Shared.
	MeanEpsilon float64 `koanf:"-"`
}

// isEnabled reports whether the correction does anything.
func (c Correction) isEnabled() bool {
	return c.Weight != WeightNone || c.M2Threshold > 0 || len(c.Rules) > 0 && c.Rules[0] != WeightNone
}

// readsKey reports whether a key counts: the further keys do so only if the correction is enabled.
func (c Correction) readsKey(key string) bool {
	switch key {
	case "weight", "rules", "m2_threshold":
		return true
	case "cap":
		return c.Weight != WeightNone
	}
	return c.isEnabled()
}

// Unread returns the reason why nothing depends on a key of the section, beginning with the other key that causes it; "" if something does.
func (c Correction) Unread(key string) string {
	if c.readsKey(key) {
		return ""
	}
	return "weight is " + c.Weight
}

// Validate reports every fault.
func (c Correction) Validate() error {
	_, rules := parseRules(c.Rules)
	return check.All(
		check.Fields(c),
		check.NotNegative("MeanEpsilon", c.MeanEpsilon),
		rules,
	)
}

// Corrected is the result of a Correction for a batch.
type Corrected struct {
	// Mask is the batch's mask, 0 also where a token was rejected.
	Mask []uint8
	// Weights a token: 0 where Mask is 0.
	Weights []float64
	// Tokens, Rejected and Clamped count action tokens: all, the tokens that rules rejected, and the tokens that rules clamped.
	Tokens, Rejected, Clamped int
	// MeanWeight is the divisor of Normalize: 1 without it.
	MeanWeight float64

	d       []float64 // log ratios, 0 where the mask is 0
	bounded []float64 // a row's, within LogBound
	order   []int
}

// Correct applies c to a whole batch. pi are the log-probabilities of the proximal or the current policy, behaviour the behaviour policy's.
// A zero field of c is off. into's memory is reused.
func Correct(c Correction, offsets []int, mask []uint8, pi, behaviour []float64, into *Corrected) error {
	if c.Weight == "" {
		c.Weight = WeightNone
	}
	if err := stats.CheckRows(offsets, mask); err != nil {
		return err
	}
	for _, f := range []field{{"Proximal", pi}, {"Behaviour", behaviour}} {
		if err := stats.CheckLength(f.name, f.x, len(mask)); err != nil {
			return err
		}
	}
	rules, err := parseRules(c.Rules)
	if err != nil {
		return err
	}
	into.resetFor(mask)
	var sum, count float64
	for i := range len(offsets) - 1 {
		lo, hi := offsets[i], offsets[i+1]
		n, err := into.logRatios(i, lo, hi, mask, pi, behaviour, c.LogBound)
		if err != nil {
			return err
		}
		c.weighRow(into.d[lo:hi], mask[lo:hi], n, into.Weights[lo:hi])
		if c.Normalize {
			s, k := c.meanWeight(into.Weights[lo:hi], mask[lo:hi], float64(n))
			sum, count = sum+s, count+k
		}
		for k := range rules {
			into.applyRule(&rules[k], mask, lo, hi, float64(n), c.MeanEpsilon)
		}
		into.Tokens += n
	}
	if c.M2Threshold > 0 {
		into.boundSecondMoment(c.M2Threshold)
	}
	into.MeanWeight = 1
	if c.Normalize && sum > 0 {
		into.MeanWeight = sum / count
	}
	for t, m := range into.Mask {
		into.Weights[t] = stats.Masked(into.Weights[t]/into.MeanWeight, m)
		into.Rejected += int(mask[t] - m)
	}
	return nil
}

func (c *Corrected) resetFor(mask []uint8) {
	c.Mask = append(c.Mask[:0], mask...)
	c.Weights, c.d = stats.Resize(c.Weights, len(mask)), stats.Resize(c.d, len(mask))
	c.Tokens, c.Rejected, c.Clamped = 0, 0, 0
}

// logRatios fills d over row i and counts its action tokens.
func (c *Corrected) logRatios(i, lo, hi int, mask []uint8, pi, behaviour []float64, bound float64) (n int, err error) {
	c.bounded = stats.Resize(c.bounded, hi-lo)
	for t := lo; t < hi; t++ {
		c.d[t], c.bounded[t-lo] = 0, 0
		if mask[t] == 0 {
			continue
		}
		n++
		d := pi[t] - behaviour[t]
		if !stats.Finite(d) {
			if stats.Finite(pi[t]) {
				return 0, stats.Fault("Behaviour", i, "token %d is %v", t-lo, behaviour[t])
			}
			return 0, stats.Fault("Proximal", i, "token %d is %v", t-lo, pi[t])
		}
		c.d[t], c.bounded[t-lo] = d, d
		if bound > 0 {
			c.bounded[t-lo] = min(max(d, -bound), bound)
		}
	}
	return n, nil
}

// weighRow writes the weights of a row of n action tokens.
func (c *Correction) weighRow(d []float64, mask []uint8, n int, weights []float64) {
	total := 0.0
	if c.Weight == WeightSequence || c.Weight == WeightGeometric {
		for _, v := range d {
			total += v
		}
		if c.Weight == WeightGeometric {
			total /= float64(max(n, 1))
		}
		total = c.truncatedWeight(total)
	}
	for t, m := range mask {
		switch {
		case m == 0:
			weights[t] = 0
		case c.Weight == WeightToken:
			weights[t] = c.truncatedWeight(d[t])
		case c.Weight == WeightSequence, c.Weight == WeightGeometric:
			weights[t] = total
		default:
			weights[t] = 1
		}
	}
}

// truncatedWeight returns min(exp(clamp(d, -LogBound, LogBound)), Cap).
func (c *Correction) truncatedWeight(d float64) float64 {
	if c.LogBound > 0 {
		d = min(max(d, -c.LogBound), c.LogBound)
	}
	w := math.Exp(d)
	if c.Cap > 0 {
		w = min(w, c.Cap)
	}
	return w
}

// meanWeight is a row's part in the mean weight: its tokens, or itself once.
func (c *Correction) meanWeight(weights []float64, mask []uint8, n float64) (sum, count float64) {
	sum, _ = stats.Sum(weights, mask)
	if n > 0 && c.Weight != WeightToken {
		return sum / (n + c.MeanEpsilon), 1
	}
	return sum, n
}

// applyRule applies a rule to the row [lo, hi) of n action tokens, in mask before any rule.
func (c *Corrected) applyRule(r *rule, mask []uint8, lo, hi int, n, epsilon float64) {
	keep := true
	if r.over != "token" {
		if n == 0 {
			return
		}
		keep = r.isWithinBounds(r.aggregateRow(c.bounded, mask[lo:hi], n+epsilon))
	}
	for t := lo; t < hi; t++ {
		if mask[t] == 0 {
			continue
		}
		if r.over == "token" {
			keep = r.isWithinBounds(r.boundedValue(r.metricOf(c.bounded[t-lo])))
		}
		switch {
		case r.action == "clamp" && (r.over == "token" || !keep):
			c.clampWeight(r, &c.Weights[t])
		case keep:
		case r.action == "zero":
			c.Weights[t] = 0
			c.Clamped++
		case r.action == "mask":
			c.Mask[t] = 0
		}
	}
}

func (c *Corrected) clampWeight(r *rule, weight *float64) {
	w := min(max(*weight, r.lower, 0), r.upper)
	if w != *weight {
		c.Clamped++
		*weight = w
	}
}

// boundSecondMoment drops the tokens with the largest d^2 until the mean of the rest is below the threshold. The last token always stays.
func (c *Corrected) boundSecondMoment(threshold float64) {
	c.order = c.order[:0]
	sum := 0.0
	for t, m := range c.Mask {
		if m != 0 {
			c.order = append(c.order, t)
			sum += c.d[t] * c.d[t]
		}
	}
	slices.SortFunc(c.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(math.Abs(c.d[b]), math.Abs(c.d[a])), cmp.Compare(a, b))
	})
	for k, t := range c.order {
		left := len(c.order) - k
		if left == 1 || sum/float64(left) < threshold {
			return
		}
		sum -= c.d[t] * c.d[t]
		c.Mask[t] = 0
	}
}

// reportCorrection adds the correction's shares of rejected and clamped tokens, and its mean weight.
func (p *policy) reportCorrection(m Metrics) {
	c := &p.corrected
	if c.Tokens == 0 {
		return
	}
	n := float64(c.Tokens)
	sum := 0.0
	for _, w := range c.Weights {
		sum += w
	}
	m["rejected"] = Mean{float64(c.Rejected), n}
	m["clamped"] = Mean{float64(c.Clamped), n}
	m["weight"] = Mean{sum, n}
}

// correctBatch returns the mask and the weights that the loss uses.
func (p *policy) correctBatch(b *Batch) (mask []uint8, weights []float64, err error) {
	c := p.shared.Correction
	p.corrected.Tokens = 0
	if !c.isEnabled() {
		return b.Mask, b.Weights, nil
	}
	pi := b.Logprobs
	if c.Of == OfProximal {
		pi = b.Proximal
		if pi == nil {
			return nil, nil, stats.Fault("Proximal", -1, "missing: the correction needs it")
		}
	}
	if err := Correct(c, b.Offsets, b.Mask, pi, b.Behaviour, &p.corrected); err != nil {
		return nil, nil, err
	}
	for t, w := range b.Weights {
		p.corrected.Weights[t] *= w
	}
	return p.corrected.Mask, p.corrected.Weights, nil
}
