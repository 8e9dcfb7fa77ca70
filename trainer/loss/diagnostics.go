package loss

import (
	"math"

	"github.com/weir-rl/weir/trainer/stats"
)

// metricEpsilon is added to the counts of the means below, as in verl, whose names the metrics bear.
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

// summary gathers what the metrics of weights and rules share.
type summary struct {
	mask    []uint8
	offsets []int
}

// mean is over action tokens.
func (s *summary) mean(value func(t int) float64) float64 {
	sum, n := 0.0, 0
	for t, m := range s.mask {
		if m != 0 {
			sum += value(t)
			n++
		}
	}
	return sum / (float64(n) + metricEpsilon)
}

// rowMeans are the rows' means over action tokens; rows without any are left out unless empty is set.
func (s *summary) rowMeans(x []float64, empty bool) []float64 {
	var out []float64
	for i := range len(s.offsets) - 1 {
		lo, hi := s.offsets[i], s.offsets[i+1]
		if empty || stats.Count(s.mask[lo:hi]) > 0 {
			out = append(out, stats.Mean(x[lo:hi], s.mask[lo:hi], metricEpsilon))
		}
	}
	return out
}

// rows adds the metrics of one value a row.
func (s *summary) rows(m map[string]float64, prefix string, x []float64, ideal, low, high float64) {
	mean, std := stats.MeanStd(x)
	m[prefix+"_seq_mean"], m[prefix+"_seq_std"] = mean, std
	least, largest, deviation := math.Inf(1), math.Inf(-1), 0.0
	var above, below float64
	for _, v := range x {
		least, largest = min(least, v), max(largest, v)
		deviation = max(deviation, math.Abs(v-ideal))
		above += indicator(v > high)
		below += indicator(v < low)
	}
	n := float64(max(1, len(x)))
	m[prefix+"_seq_max"], m[prefix+"_seq_min"], m[prefix+"_seq_max_deviation"] = largest, least, deviation
	m[prefix+"_seq_fraction_high"], m[prefix+"_seq_fraction_low"] = above/n, below/n
}

// std is the deviation of values kept within [low, high], 0 of a single token.
func (s *summary) std(x []float64, low, high float64) float64 {
	if _, n := stats.Sum(x, s.mask); n < 2 {
		return 0
	}
	within := func(t int) float64 { return min(max(x[t], low), high) }
	mean := s.mean(within)
	square := s.mean(func(t int) float64 { return within(t) * within(t) })
	return math.Sqrt(max(0, square-mean*mean))
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// WeightMetrics describe the importance weights of a correction before its Cap: mean, extremes, deviation, effective
// sample size, and how many lie beyond Cap or below 1/Cap. c.Weight is token or sequence.
func WeightMetrics(c Correction, offsets []int, mask []uint8, pi, behaviour []float64) (map[string]float64, error) {
	high := c.Cap
	if high <= 0 {
		high = math.Inf(1)
	}
	low := 1 / high
	c.Cap, c.Normalize, c.Rules, c.M2Threshold = Off, false, nil, Off
	var w Corrected
	if err := Correct(c, offsets, mask, pi, behaviour, &w); err != nil {
		return nil, err
	}
	if w.Tokens == 0 {
		return nil, stats.Fault("Mask", -1, "no action token")
	}
	const prefix = "rollout_is"
	s := &summary{mask: mask, offsets: offsets}
	m := map[string]float64{}
	weight := func(t int) float64 { return w.Weights[t] }
	m[prefix+"_mean"] = s.mean(weight)
	m[prefix+"_std"] = s.std(w.Weights, low, high)
	within := func(t int) float64 { return min(max(w.Weights[t], low), high) }
	mean := s.mean(within) + metricEpsilon
	m[prefix+"_eff_sample_size"] = 1 / s.mean(func(t int) float64 { return within(t) / mean * within(t) / mean })
	if c.Weight == WeightSequence {
		s.sequences(m, prefix, w.d, low, high)
	} else {
		m[prefix+"_max"], m[prefix+"_min"] = extremes(w.Weights, mask)
		m[prefix+"_ratio_fraction_high"] = s.mean(func(t int) float64 { return indicator(w.Weights[t] > high) })
		m[prefix+"_ratio_fraction_low"] = s.mean(func(t int) float64 { return indicator(w.Weights[t] < low) })
	}
	s.rows(m, prefix, s.rowMeans(w.Weights, true), 1, low, high)
	return m, nil
}

// sequences adds the extremes of the rows' products of ratios, a row without action tokens counting as 1.
func (s *summary) sequences(m map[string]float64, prefix string, d []float64, low, high float64) {
	least, largest, above, below := math.Inf(1), math.Inf(-1), 0.0, 0.0
	rows := float64(len(s.offsets) - 1)
	for i := range len(s.offsets) - 1 {
		sum, _ := stats.Sum(d[s.offsets[i]:s.offsets[i+1]], s.mask[s.offsets[i]:s.offsets[i+1]])
		least, largest = min(least, sum), max(largest, sum)
		above += indicator(sum > math.Log(high)) / rows
		below += indicator(sum < math.Log(low)) / rows
	}
	m[prefix+"_max"], m[prefix+"_min"] = math.Exp(min(largest, metricBound)), math.Exp(least)
	m[prefix+"_ratio_fraction_high"], m[prefix+"_ratio_fraction_low"] = above, below
}

// extremes are the largest and the least over action tokens.
func extremes(x []float64, mask []uint8) (largest, least float64) {
	largest, least = math.Inf(-1), math.Inf(1)
	for t, m := range mask {
		if m != 0 {
			largest, least = max(largest, x[t]), min(least, x[t])
		}
	}
	return largest, least
}

// Metrics describe what a rule saw and dropped, under the prefix.
func (r *RuleReport) Metrics(prefix string, offsets []int, mask []uint8) map[string]float64 {
	s := &summary{mask: mask, offsets: offsets}
	m := map[string]float64{}
	m[prefix+"_mean"] = s.mean(func(t int) float64 { return r.Values[t] })
	m[prefix+"_max"], m[prefix+"_min"] = extremes(r.Values, mask)
	low := r.Lower
	if math.IsInf(low, -1) {
		low = 0
	}
	m[prefix+"_std"] = s.std(r.Values, low, r.Upper)
	m[prefix+"_masked_fraction"] = s.mean(func(t int) float64 { return 1 - float64(r.Keep[t]) })
	values := s.rowMeans(r.Values, false)
	if r.PerRow {
		values = r.rowValues(offsets, mask)
	}
	s.rows(m, prefix, values, 0, r.Lower, r.Upper)
	if r.PerRow {
		m[prefix+"_fraction_high"], m[prefix+"_fraction_low"] = m[prefix+"_seq_fraction_high"], m[prefix+"_seq_fraction_low"]
	} else {
		m[prefix+"_fraction_high"] = s.mean(func(t int) float64 { return indicator(r.Values[t] > r.Upper) })
		m[prefix+"_fraction_low"] = s.mean(func(t int) float64 { return indicator(r.Values[t] < r.Lower) })
	}
	m[prefix+"_seq_masked_fraction"] = rowsTouched(offsets, mask, r.Keep, false)
	return m
}

// rowValues are the values of the rows with action tokens.
func (r *RuleReport) rowValues(offsets []int, mask []uint8) []float64 {
	var out []float64
	for i := range len(offsets) - 1 {
		for t := offsets[i]; t < offsets[i+1]; t++ {
			if mask[t] != 0 {
				out = append(out, r.Values[t])
				break
			}
		}
	}
	return out
}

// rowsTouched is the share of rows, those without action tokens counted or not, that lost one.
func rowsTouched(offsets []int, mask, keep []uint8, countEmpty bool) float64 {
	touched, rows := 0.0, 0.0
	for i := range len(offsets) - 1 {
		all, kept := stats.Count(mask[offsets[i]:offsets[i+1]]), stats.Count(keep[offsets[i]:offsets[i+1]])
		rows += indicator(all > 0 || countEmpty)
		touched += indicator(kept < all)
	}
	return stats.Divide(touched, rows)
}

// RejectionMetrics are what all rules together dropped. A batch without an action token is an error.
func (c *Corrected) RejectionMetrics(prefix string, offsets []int, mask []uint8) (map[string]float64, error) {
	if c.Tokens == 0 {
		return nil, stats.Fault("Mask", -1, "no action token")
	}
	return map[string]float64{
		prefix + "_masked_fraction":     float64(c.Rejected) / (float64(c.Tokens) + metricEpsilon),
		prefix + "_seq_masked_fraction": rowsTouched(offsets, mask, c.Mask, true),
	}, nil
}
