package goldentest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/trainer/loss"
)

func primeRunners() map[string]func(*golden) error {
	return map[string]func(*golden) error{
		"loss_prime_rl":           primeLosses,
		"loss_prime_rl_compute":   primeCompute,
		"loss_prime_rl_masked_is": primeMaskedIS,
	}
}

// primeNames are prime-rl's names of its loss types.
var primeNames = map[string]string{"default": "dppo", "ipo": "ipo", "ref_kl": "ref_kl", "ce": "cross_entropy"}

// primeLoss is a loss of prime-rl, whose sequences add up.
func primeLoss(c *golden) (loss.Policy, error) {
	o := lossKeys{
		LogRatioClamp: loss.Off, AdvantageTau: c.num("adv_tau", 1), KLTau: c.num("kl_tau", 1e-3),
		MaskLow:  c.num("dppo_mask_low", c.num("ipo_threshold", 0.2)),
		MaskHigh: c.num("dppo_mask_high", c.num("ipo_threshold", 0.2)),
	}
	return newLoss(primeNames[c.text("type")], o)
}

// sequence is one of a case's sequences as a batch of its own, with denominators of 1: a sum.
func sequence(v any) (*loss.Batch, map[string]any) {
	s := v.(map[string]any)
	b := &loss.Batch{
		Logprobs: vector(s["trainer_logprobs"]), Behaviour: vector(s["inference_logprobs"]),
		Reference: vector(s["ref_logprobs"]), Weights: vector(s["loss_weights"]), Advantages: vector(s["advantages"]), Counts: loss.Counts{Tokens: 1, Rows: 1},
	}
	for _, m := range vector(s["loss_mask"]) {
		b.Mask = append(b.Mask, uint8(m))
	}
	b.Offsets = []int{0, len(b.Mask)}
	return b, s
}

// primeMetrics are ours under prime-rl's names.
func primeMetrics(kind string, m loss.Metrics) map[string]float64 {
	out := metricValues(m, nil, 0)
	if kind == "ref_kl" {
		for _, name := range []string{"masked_mismatch_kl", "unmasked_mismatch_kl", "is_masked"} {
			out["ref_kl/"+name] = out[name]
		}
	}
	return out
}

func primeLosses(c *golden) error {
	want := c.Expected["per_sequence"].([]any)
	c.compared["per_sequence"] = true
	l, err := primeLoss(c)
	if err != nil {
		return err
	}
	for i, v := range c.Inputs["sequences"].([]any) {
		b, _ := sequence(v)
		var out loss.Result
		if err := l.Loss(b, &out); err != nil {
			return err
		}
		one := &golden{Expected: want[i].(map[string]any), compared: map[string]bool{}}
		one.want("loss", out.Loss)
		one.want("grad_trainer_logprobs", out.Grad)
		one.wantIn("metrics", primeMetrics(c.text("type"), out.Metrics))
		for _, problem := range one.problems {
			c.problems = append(c.problems, fmt.Sprintf("sequence %d: %s", i, problem))
		}
	}
	return nil
}

// primeCompute routes tokens to three losses.
func primeCompute(c *golden) error {
	rl, err := primeLoss(c.sub("loss"))
	if err != nil {
		return err
	}
	ce, err := newLoss("cross_entropy", lossKeys{})
	if err != nil {
		return err
	}
	reference, err := newLoss("ref_kl", lossKeys{LogRatioClamp: loss.Off})
	if err != nil {
		return err
	}
	total, grads := 0.0, [][]float64{}
	metrics := map[string][]float64{}
	for _, v := range c.Inputs["sequences"].([]any) {
		b, s := sequence(v)
		all := slices.Repeat([]uint8{1}, len(b.Mask))
		parts := []*part{{policy: rl, weights: vector(s["rl_weights"]), counts: loss.Counts{Tokens: int(c.num("rl_scale", 1))}}}
		kinds := []string{"default"}
		if w := vector(s["ce_weights"]); w != nil {
			parts = append(parts, &part{policy: ce, weights: w, mask: all, counts: loss.Counts{Tokens: int(c.num("ce_scale", 1))}})
			kinds = append(kinds, "ce")
		}
		if w := vector(s["ref_kl_weights"]); w != nil {
			parts = append(parts, &part{policy: reference, weights: w, mask: all, counts: loss.Counts{Tokens: int(c.num("ref_kl_scale", 1))}})
			kinds = append(kinds, "ref_kl")
		}
		var out loss.Result
		if err := mix(b, parts, &out); err != nil {
			return err
		}
		total += out.Loss
		grads = append(grads, out.Grad)
		for k, p := range parts {
			for name, value := range primeMetrics(kinds[k], p.out.Metrics) {
				if kinds[k] == "ref_kl" && !strings.HasPrefix(name, "ref_kl") {
					continue
				}
				if ran(p) {
					metrics[name] = append(metrics[name], value)
				}
			}
		}
	}
	c.want("loss", total)
	c.want("grad_trainer_logprobs", grads)
	wanted := c.Expected["metrics"].(map[string]any)
	c.compared["metrics"] = true
	for name, values := range wanted {
		c.equal("metrics."+name, values, metrics[name])
	}
	return nil
}

// part is one loss of a mixture, with the weight of each token in it: some tokens learn by reinforcement, others by
// imitation or distillation. Weighing and adding them is this package's own code; each part is a loss of a run.
type part struct {
	policy loss.Policy
	// mask is 1 at the tokens that the part may train; nil means the batch's. Of these, a weight of 0 removes a token.
	mask []uint8
	// weights a token multiply the loss; nil means 1.
	weights []float64
	// counts are the part's own denominators.
	counts loss.Counts
	out    loss.Result
}

// mix fills out with the sum of the parts' losses and gradients.
func mix(b *loss.Batch, parts []*part, out *loss.Result) error {
	out.Loss, out.Grad = 0, make([]float64, len(b.Mask))
	for _, p := range parts {
		one := *b
		one.Weights, one.Counts = p.weights, p.counts
		if p.mask != nil {
			one.Mask = p.mask
		}
		if p.weights != nil {
			routed := make([]uint8, len(one.Mask))
			for t, w := range p.weights {
				if w != 0 {
					routed[t] = one.Mask[t]
				}
			}
			one.Mask = routed
		}
		if err := p.policy.Loss(&one, &p.out); err != nil {
			return err
		}
		out.Loss += p.out.Loss
		for t, g := range p.out.Grad {
			out.Grad[t] += g
		}
	}
	return nil
}

// ran says whether the part has any token; a part without weights runs always.
func ran(p *part) bool {
	if p.weights == nil {
		return true
	}
	for _, m := range p.out.Metrics {
		if m.Count > 0 {
			return true
		}
	}
	return false
}

// primeMaskedIS is the loss of 2025-12: importance weights detached, rejected by token, row and geometric mean.
func primeMaskedIS(c *golden) error {
	k := loss.Correction{Of: loss.OfCurrent, Weight: loss.WeightToken, LogBound: loss.Off, Rules: []string{
		fmt.Sprintf("mask token ratio %v %v", c.num("token_mask_low", 0), c.num("token_mask_high", 0)),
		fmt.Sprintf("mask min ratio %v -", c.num("sequence_mask_low", 0)),
		fmt.Sprintf("mask max ratio - %v", c.num("sequence_mask_high", 0)),
		fmt.Sprintf("mask mean ratio %v %v", c.num("geo_mask_low", 0), c.num("geo_mask_high", 0)),
	}}
	o := lossKeys{Correction: k, KLTau: c.num("kl_tau", 0), KeepNonFinite: true}
	scale := int(c.num("loss_scale", 1))
	counts := loss.Counts{Tokens: scale, Rows: scale}
	o.Aggregation.Mode = loss.TokenMean
	if c.text("ratio_type") == "sequence" {
		o.Correction.Weight, o.Correction.Cap = loss.WeightSequence, c.num("sequence_clip_high", 10)
		o.Aggregation.Mode = loss.SeqMeanTokenMean
	}
	if o.KLTau == 0 {
		o.KLTau = loss.Off
	}
	l, err := newLoss("masked_is", o)
	if err != nil {
		return err
	}
	total, grads := 0.0, [][]float64{}
	metrics := map[string][]float64{}
	for _, v := range c.Inputs["sequences"].([]any) {
		b, _ := sequence(v)
		b.Counts = counts
		var out loss.Result
		if err := l.Loss(b, &out); err != nil {
			return err
		}
		total += out.Loss
		grads = append(grads, out.Grad)
		if err := maskedISMetrics(o.Correction, b, metrics); err != nil {
			return err
		}
	}
	c.want("loss", total)
	c.want("grad_trainer_logprobs", grads)
	c.compared["metrics"] = true
	for name, values := range c.Expected["metrics"].(map[string]any) {
		c.equal("metrics."+name, values, metrics[name])
	}
	return nil
}

// maskedISMetrics reads one sequence's metrics off what each rule saw.
func maskedISMetrics(k loss.Correction, b *loss.Batch, into map[string][]float64) error {
	var out loss.Corrected
	if err := loss.Correct(k, b.Offsets, b.Mask, b.Logprobs, b.Behaviour, &out); err != nil {
		return err
	}
	reports, err := reportsOf(k, b.Offsets, b.Mask, b.Logprobs, b.Behaviour)
	if err != nil {
		return err
	}
	add := func(name string, v ...float64) { into[name] = append(into[name], v...) }
	add("mismatch_kl", mismatch(b, b.Mask))
	add("unmasked_mismatch_kl", mismatch(b, out.Mask))
	dropped := slices.Clone(b.Mask)
	for t, kept := range out.Mask {
		dropped[t] -= kept
	}
	add("masked_mismatch_kl", mismatch(b, dropped))
	token, least, most, geometric := &reports[0], &reports[1], &reports[2], &reports[3]
	for t, m := range b.Mask {
		if m != 0 {
			add("is_masked", float64(dropped[t]))
			add("is_masked_low", below(token, t))
			add("is_masked_high", above(token, t))
		}
	}
	first := slices.Index(b.Mask, 1)
	add("sequence_masked_low", below(least, first))
	add("sequence_masked_high", above(most, first))
	add("geo_masked_low", below(geometric, first))
	add("geo_masked_high", above(geometric, first))
	if first < 0 {
		add("geo_seq_ratio", 1)
	} else {
		add("geo_seq_ratio", geometric.values[first])
	}
	return nil
}

func below(r *ruleReport, t int) float64 {
	if t >= 0 && r.values[t] < r.lower {
		return 1
	}
	return 0
}

func above(r *ruleReport, t int) float64 {
	if t >= 0 && r.values[t] > r.upper {
		return 1
	}
	return 0
}

// mismatch is the mean of k3 over a mask: exp(d) - 1 - d, as the off-policy metrics have it.
func mismatch(b *loss.Batch, mask []uint8) float64 {
	n := loss.Count(b.Offsets, mask).Tokens
	if n == 0 {
		return 0
	}
	k := loss.KL{Kind: "k3", LogClamp: loss.Off, Clamp: loss.Off}
	sum := 0.0
	for t, m := range mask {
		if m != 0 {
			value, _ := k.At(b.Behaviour[t], b.Logprobs[t])
			sum += value
		}
	}
	return sum / float64(n)
}
