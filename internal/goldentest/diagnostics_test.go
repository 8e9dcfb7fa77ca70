package goldentest

import (
	"math"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/stats"
)

// What verl and prime-rl log of importance weights and rejection rules, which no run of Weir reports: this package's own
// code. The weights and masks that it describes are loss.Correct's.

// verlLogBound bounds logarithms before exp in verl's metrics.
const verlLogBound = 20

// ruleReport is what one rejection rule saw.
type ruleReport struct {
	// perRow says whether the rule looks at rows.
	perRow bool
	// lower and upper are its bounds, infinite where there is none.
	lower, upper float64
	// values a token: the metric, a row's for each of its action tokens. 0 where the mask is 0.
	values []float64
	// keep a token: 0 where the rule dropped an action token.
	keep []uint8
}

// reportsOf has one entry a rule of the correction.
func reportsOf(c loss.Correction, offsets []int, mask []uint8, pi, behaviour []float64) ([]ruleReport, error) {
	var out []ruleReport
	for _, text := range c.Rules {
		alone := c
		alone.Rules, alone.Weight, alone.M2Threshold = []string{text}, loss.WeightNone, loss.Off
		var kept loss.Corrected
		if err := loss.Correct(alone, offsets, mask, pi, behaviour, &kept); err != nil {
			return nil, err
		}
		f := strings.Fields(text) // ACTION OVER METRIC LOWER UPPER
		r := ruleReport{perRow: f[1] != "token", keep: kept.Mask, values: make([]float64, len(mask))}
		r.lower, r.upper = bound(f[3], math.Inf(-1)), bound(f[4], math.Inf(1))
		d := logRatios(mask, pi, behaviour, c.LogBound)
		for i := range len(offsets) - 1 {
			ruleValues(f[1], f[2], c.MeanEpsilon, d[offsets[i]:offsets[i+1]], mask[offsets[i]:offsets[i+1]], r.values[offsets[i]:offsets[i+1]])
		}
		out = append(out, r)
	}
	return out, nil
}

func bound(text string, none float64) float64 {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		return v
	}
	return none
}

// logRatios are log(pi/behaviour), 0 where the mask is 0, within the bound unless that is off.
func logRatios(mask []uint8, pi, behaviour []float64, bound float64) []float64 {
	d := make([]float64, len(mask))
	for t, m := range mask {
		if m != 0 {
			d[t] = pi[t] - behaviour[t]
			if bound > 0 {
				d[t] = min(max(d[t], -bound), bound)
			}
		}
	}
	return d
}

// ruleValues writes a rule's metric of a row's log ratios: each action token's, or the row's at each of them. A ratio is
// aggregated as a logarithm.
func ruleValues(over, metric string, epsilon float64, d []float64, mask []uint8, out []float64) {
	value := map[string]func(d float64) float64{
		"ratio": func(d float64) float64 { return d }, "k1": func(d float64) float64 { return d },
		"-k1": func(d float64) float64 { return -d }, "k2": func(d float64) float64 { return d * d / 2 },
		"k3": func(d float64) float64 { return math.Exp(-d) - 1 + d }, "-k3": func(d float64) float64 { return math.Exp(d) - 1 - d },
	}[metric]
	final := func(v float64) float64 {
		if metric == "ratio" {
			return math.Exp(v)
		}
		return v
	}
	sum, n, least, largest := 0.0, 0.0, math.Inf(1), math.Inf(-1)
	for t, m := range mask {
		if m != 0 {
			v := value(d[t])
			sum, n, least, largest = sum+v, n+1, min(least, v), max(largest, v)
		}
	}
	ofRow := map[string]float64{"sum": sum, "mean": sum / (n + epsilon), "min": least, "max": largest}
	for t, m := range mask {
		if m != 0 {
			if v, row := ofRow[over]; row {
				out[t] = final(v)
			} else {
				out[t] = final(value(d[t]))
			}
		}
	}
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
	return sum / (float64(n) + verlEpsilon)
}

// rowMeans are the rows' means over action tokens; rows without any are left out unless empty is set.
func (s *summary) rowMeans(x []float64, empty bool) []float64 {
	var out []float64
	for i := range len(s.offsets) - 1 {
		lo, hi := s.offsets[i], s.offsets[i+1]
		if empty || stats.Count(s.mask[lo:hi]) > 0 {
			out = append(out, stats.Mean(x[lo:hi], s.mask[lo:hi], verlEpsilon))
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

// weightMetrics describe the importance weights of a correction before its Cap: mean, extremes, deviation, effective
// sample size, and how many lie beyond Cap or below 1/Cap. c.Weight is token or sequence.
func weightMetrics(c loss.Correction, offsets []int, mask []uint8, pi, behaviour []float64) (map[string]float64, error) {
	high := c.Cap
	if high <= 0 {
		high = math.Inf(1)
	}
	low := 1 / high
	c.Cap, c.Normalize, c.Rules, c.M2Threshold = loss.Off, false, nil, loss.Off
	var w loss.Corrected
	if err := loss.Correct(c, offsets, mask, pi, behaviour, &w); err != nil {
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
	mean := s.mean(within) + verlEpsilon
	m[prefix+"_eff_sample_size"] = 1 / s.mean(func(t int) float64 { return within(t) / mean * within(t) / mean })
	if c.Weight == loss.WeightSequence {
		s.sequences(m, prefix, logRatios(mask, pi, behaviour, loss.Off), low, high)
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
	m[prefix+"_max"], m[prefix+"_min"] = math.Exp(min(largest, verlLogBound)), math.Exp(least)
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

// metrics describe what a rule saw and dropped, under the prefix.
func (r *ruleReport) metrics(prefix string, offsets []int, mask []uint8) map[string]float64 {
	s := &summary{mask: mask, offsets: offsets}
	m := map[string]float64{}
	m[prefix+"_mean"] = s.mean(func(t int) float64 { return r.values[t] })
	m[prefix+"_max"], m[prefix+"_min"] = extremes(r.values, mask)
	low := r.lower
	if math.IsInf(low, -1) {
		low = 0
	}
	m[prefix+"_std"] = s.std(r.values, low, r.upper)
	m[prefix+"_masked_fraction"] = s.mean(func(t int) float64 { return 1 - float64(r.keep[t]) })
	values := s.rowMeans(r.values, false)
	if r.perRow {
		values = r.rowValues(offsets, mask)
	}
	s.rows(m, prefix, values, 0, r.lower, r.upper)
	if r.perRow {
		m[prefix+"_fraction_high"], m[prefix+"_fraction_low"] = m[prefix+"_seq_fraction_high"], m[prefix+"_seq_fraction_low"]
	} else {
		m[prefix+"_fraction_high"] = s.mean(func(t int) float64 { return indicator(r.values[t] > r.upper) })
		m[prefix+"_fraction_low"] = s.mean(func(t int) float64 { return indicator(r.values[t] < r.lower) })
	}
	m[prefix+"_seq_masked_fraction"] = rowsTouched(offsets, mask, r.keep, false)
	return m
}

// rowValues are the values of the rows with action tokens.
func (r *ruleReport) rowValues(offsets []int, mask []uint8) []float64 {
	var out []float64
	for i := range len(offsets) - 1 {
		for t := offsets[i]; t < offsets[i+1]; t++ {
			if mask[t] != 0 {
				out = append(out, r.values[t])
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

// rejectionMetrics are what all rules together dropped. A batch without an action token is an error.
func rejectionMetrics(c *loss.Corrected, prefix string, offsets []int, mask []uint8) (map[string]float64, error) {
	if c.Tokens == 0 {
		return nil, stats.Fault("Mask", -1, "no action token")
	}
	return map[string]float64{
		prefix + "_masked_fraction":     float64(c.Rejected) / (float64(c.Tokens) + verlEpsilon),
		prefix + "_seq_masked_fraction": rowsTouched(offsets, mask, c.Mask, true),
	}, nil
}
