package loss

import (
	"math"

	"github.com/weir-rl/weir/trainer/stats"
)

// metricEpsilon is added to the counts of the means below, as in verl; the metrics have verl's names.
const metricEpsilon = 1e-8

// metricBound bounds logarithms before exp.
const metricBound = 20

// OffPolicy measures how far pi (the proximal or current policy) is from the behaviour policy, once a step:
// perplexities of both, KL estimates and chi-squared divergences. Perplexities are means over rows, a row
// without action tokens counting as 1.
func OffPolicy(offsets []int, mask []uint8, pi, behaviour []float64) (map[string]float64, error) {
	var c Corrected
	if err := Correct(Correction{}, offsets, mask, pi, behaviour, &c); err != nil {
		return nil, err
	}
	if c.Tokens == 0 {
		return nil, stats.Fault("Mask", -1, "no action token")
	}
	rows := float64(len(offsets) - 1)
	m := map[string]float64{"log_ppl_diff_max": math.Inf(-1), "log_ppl_diff_min": math.Inf(1)}
	for i := range len(offsets) - 1 {
		lo, hi := offsets[i], offsets[i+1]
		training := -stats.Mean(pi[lo:hi], mask[lo:hi], metricEpsilon)
		rollout := -stats.Mean(behaviour[lo:hi], mask[lo:hi], metricEpsilon)
		m["training_ppl"] += math.Exp(training) / rows
		m["training_log_ppl"] += training / rows
		m["rollout_ppl"] += math.Exp(rollout) / rows
		m["rollout_log_ppl"] += rollout / rows
		diff := training - rollout
		m["log_ppl_diff"] += diff / rows
		m["log_ppl_abs_diff"] += math.Abs(diff) / rows
		m["log_ppl_diff_max"] = max(m["log_ppl_diff_max"], diff)
		m["log_ppl_diff_min"] = min(m["log_ppl_diff_min"], diff)
		m["ppl_ratio"] += math.Exp(diff) / rows
		sum, _ := stats.Sum(c.d[lo:hi], mask[lo:hi])
		m["chi2_seq"] += math.Exp(2*min(max(sum, -metricBound), metricBound)) / rows
	}
	m["chi2_seq"]--
	tokens := float64(c.Tokens) + metricEpsilon
	for t, v := range mask {
		if v == 0 {
			continue
		}
		d := c.d[t]
		bounded := min(max(d, -metricBound), metricBound)
		m["kl"] -= d / tokens
		m["k3_kl"] += (math.Exp(d) - d - 1) / tokens
		m["chi2_token"] += math.Exp(2*bounded) / tokens
	}
	m["chi2_token"]--
	return m, nil
}
