package goldentest

import (
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/stats"
)

func statsRunners() map[string]func(*golden) error {
	return map[string]func(*golden) error{
		"masked_stats_verl":    maskedStats,
		"areal_normalization":  normalization,
		"entropy_logprob_verl": entropyLogprob,
	}
}

func maskedStats(c *golden) error {
	const epsilon = 1e-8
	p := c.packed("mask")
	x, m := p.tokens("values"), p.mask("mask")
	sum, _ := stats.Sum(x, m)
	c.want("sum", sum)
	c.want("mean", stats.Mean(x, m, epsilon))
	var rows []float64
	for i := range len(p.offsets) - 1 {
		lo, hi := p.offsets[i], p.offsets[i+1]
		rows = append(rows, stats.Mean(x[lo:hi], m[lo:hi], epsilon))
	}
	c.want("mean_axis1", rows)
	// Whitening's variance is in its result; this is verl's, from the same moments.
	of := stats.MomentsOf(x, m)
	mean := stats.Mean(x, m, epsilon)
	biased := (of.Squares + of.N*(of.Mean-mean)*(of.Mean-mean)) / (of.N + epsilon)
	c.want("var_unbiased", biased*of.N/(of.N-1))
	c.want("var_biased", biased)
	w := stats.Whitening{MeanEpsilon: epsilon, VarianceEpsilon: epsilon}
	y := make([]float64, len(x))
	if err := w.Apply(x, m, y); err != nil {
		return err
	}
	c.wantTokens(p, "whiten_shift", y)
	w.KeepMean = true
	if err := w.Apply(x, m, y); err != nil {
		return err
	}
	c.wantTokens(p, "whiten_noshift", y)
	return nil
}

// arealNormalization reads a normalization's settings.
func arealNormalization(c *golden) stats.Normalization {
	n := stats.DefaultNormalization()
	n.Epsilon = c.num("eps", 1e-5)
	if level := c.text("mean_level"); level != "" {
		n.Mean = level
	}
	if level := c.text("std_level"); level != "" {
		n.Std = level
	}
	n.LeaveOneOut, n.Biased = c.flag("mean_leave1out"), c.Params["std_unbiased"] == false
	return n
}

// consecutive groups rows in order; those left over belong to none.
func consecutive(rows, size int) []int {
	groups := make([]int, rows)
	for i := range groups {
		groups[i] = i / size
		if groups[i] >= rows/size {
			groups[i] = -1
		}
	}
	return groups
}

func normalization(c *golden) error {
	p := c.packed("x")
	x := p.tokens("x")
	if c.Inputs["loss_mask"] == nil && len(p.offsets) == 2 { // one entry a row
		p.offsets = p.offsets[:1]
		for i := range x {
			p.offsets = append(p.offsets, i+1)
		}
	}
	groups := consecutive(len(p.offsets)-1, int(c.num("group_size", 1)))
	y := make([]float64, len(x))
	if err := arealNormalization(c).Apply(x, p.offsets, p.mask("loss_mask"), groups, nil, y); err != nil {
		return err
	}
	c.want("normalized", p.rows(c, "normalized", y))
	return nil
}

// entropyLogprob goes through the softmax to the logits.
func entropyLogprob(c *golden) error {
	logits := c.Inputs["logits"].([]any)
	p := c.packed("response_mask")
	mask := p.mask("response_mask")
	labels := p.tokens("labels")
	var rows [][]float64
	for _, row := range logits {
		rows = append(rows, matrix(row)...)
	}
	entropies, logprobs := make([]float64, len(rows)), make([]float64, len(rows))
	for t, row := range rows {
		logprobs[t], entropies[t] = categorical(row, int(labels[t]))
	}
	c.wantTokens(p, "entropy", entropies)
	c.wantTokens(p, "logprobs", logprobs)
	b := &loss.Batch{Offsets: p.offsets, Mask: mask, Entropies: entropies}
	var out loss.Result
	if err := loss.AddEntropy(-1, aggregation(c, p), b, &out); err != nil {
		return err
	}
	c.want("entropy_loss", out.Loss)
	c.want("grad_entropy_loss_logits", gradLogits(p, rows, labels, nil, out.GradEntropies))
	c.want("grad_sum_masked_logprobs_logits", gradLogits(p, rows, labels, floats(mask), nil))
	return nil
}

// gradLogits shapes the gradient as [row][token][vocabulary].
func gradLogits(p packed, logits [][]float64, labels, logprobs, entropies []float64) any {
	var flat [][]float64
	for t, row := range logits {
		grad := make([]float64, len(row))
		var g, h float64
		if logprobs != nil {
			g = logprobs[t]
		}
		if entropies != nil {
			h = entropies[t]
		}
		categoricalGrad(row, int(labels[t]), g, h, grad)
		flat = append(flat, grad)
	}
	var out []any
	for _, row := range split(p.offsets, flat) {
		out = append(out, row)
	}
	return out
}
