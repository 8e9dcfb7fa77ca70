package goldentest

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/stats"
)

func correctionRunners() map[string]func(*golden) error {
	return map[string]func(*golden) error{
		"rollout_is_weights_verl":        rolloutWeights,
		"rollout_rs_mask_verl":           rolloutRejection,
		"rollout_offpolicy_metrics_verl": offPolicy,
		"areal_rejection_sampling":       arealRejection,
		"areal_m2po_mask":                m2po,
		"areal_prox_logp_approx":         proximalApproximation,
		"loss_areal_decoupled_ppo":       decoupledPPO,
		"loss_areal_decoupled_ppo_cap":   decoupledPPO,
		"loss_areal_sapo":                arealSAPO,
	}
}

// verlCorrection reads rollout_is and rollout_rs.
func verlCorrection(c *golden) (loss.Correction, error) {
	k := loss.Correction{Of: loss.OfCurrent, LogBound: 20, MeanEpsilon: verlEpsilon, DropRejected: true}
	if is := c.text("rollout_is"); is != "" {
		k.Weight, k.Cap = is, c.num("rollout_is_threshold", 2)
		k.Normalize = c.flag("rollout_is_batch_normalize")
	}
	rules, err := verlRules(c)
	k.Rules = rules
	return k, err
}

// verlOptionsOf are the names in rollout_rs.
func verlOptionsOf(c *golden) []string {
	if c.text("rollout_rs") == "" {
		return nil
	}
	return strings.Split(c.text("rollout_rs"), ",")
}

// verlRules turns rollout_rs and its thresholds into rules. A k1 is bounded by ratios, l_u or u for 1/u_u.
func verlRules(c *golden) ([]string, error) {
	options := verlOptionsOf(c)
	var thresholds []string
	switch v := c.Params["rollout_rs_threshold"].(type) {
	case string:
		thresholds = strings.Split(v, ",")
	case float64:
		thresholds = []string{strconv.FormatFloat(v, 'g', -1, 64)}
	}
	var rules []string
	for k, option := range options {
		threshold := thresholds[min(k, len(thresholds)-1)]
		over, metric := "token", strings.TrimPrefix(option, "token_")
		if rest, ok := strings.CutPrefix(option, "seq_"); ok {
			over, metric, _ = strings.Cut(rest, "_")
		}
		lower, upper := "-", threshold
		if metric == "k1" {
			l, u, both := strings.Cut(threshold, "_")
			if !both {
				u = l
			}
			high, err := strconv.ParseFloat(u, 64)
			if err != nil {
				return nil, err
			}
			low := 1 / high
			if both {
				if low, err = strconv.ParseFloat(l, 64); err != nil {
					return nil, err
				}
			}
			lower, upper = strconv.FormatFloat(math.Log(low), 'g', -1, 64), strconv.FormatFloat(math.Log(high), 'g', -1, 64)
		}
		if metric != "k2" {
			metric = "-" + metric
		}
		rules = append(rules, fmt.Sprintf("mask %s %s %s %s", over, metric, lower, upper))
	}
	return rules, nil
}

func rolloutWeights(c *golden) error {
	p := c.packed("response_mask")
	k, err := verlCorrection(c)
	if err != nil {
		return err
	}
	mask, pi, mu := p.mask("response_mask"), p.tokens("old_log_prob"), p.tokens("rollout_log_prob")
	var out loss.Corrected
	if err := loss.Correct(k, p.offsets, mask, pi, mu, &out); err != nil {
		return err
	}
	c.wantTokens(p, "rollout_is_weights", out.Weights)
	metrics, err := weightMetrics(k, p.offsets, mask, pi, mu)
	if err != nil {
		return err
	}
	metrics["rollout_is_batch_norm_factor"] = out.MeanWeight
	c.wantIn("metrics", metrics)
	return nil
}

// rulesMetrics are those of each rule and of all.
func rulesMetrics(c *golden, k loss.Correction, b *loss.Batch, pi []float64, out *loss.Corrected) (map[string]float64, error) {
	metrics, err := rejectionMetrics(out, "rollout_rs", b.Offsets, b.Mask)
	if err != nil {
		return nil, err
	}
	reports, err := reportsOf(k, b.Offsets, b.Mask, pi, b.Behaviour)
	if err != nil {
		return nil, err
	}
	for k, option := range verlOptionsOf(c) {
		maps.Copy(metrics, reports[k].metrics("rollout_rs_"+option, b.Offsets, b.Mask))
	}
	return metrics, nil
}

func rolloutRejection(c *golden) error {
	p := c.packed("response_mask")
	k, err := verlCorrection(c)
	if err != nil {
		return err
	}
	b := &loss.Batch{Offsets: p.offsets, Mask: p.mask("response_mask"), Behaviour: p.tokens("rollout_log_prob")}
	pi := p.tokens("old_log_prob")
	var out loss.Corrected
	if err := loss.Correct(k, b.Offsets, b.Mask, pi, b.Behaviour, &out); err != nil {
		return err
	}
	c.wantTokens(p, "modified_response_mask", floats(out.Mask))
	metrics, err := rulesMetrics(c, k, b, pi, &out)
	if err != nil {
		return err
	}
	c.wantIn("metrics", metrics)
	return nil
}

func offPolicy(c *golden) error {
	p := c.packed("response_mask")
	m, err := loss.OffPolicy(p.offsets, p.mask("response_mask"), p.tokens("old_log_prob"), p.tokens("rollout_log_prob"))
	if err != nil {
		return err
	}
	c.wantIn("metrics", m)
	return nil
}

// bypass is verl's two-policy mode: PPO with rejection, or REINFORCE with weights too, both taken from the
// current policy.
func bypass(c *golden) error {
	p := c.packed("response_mask")
	rc := c.sub("rollout_correction")
	k, err := verlCorrection(rc)
	if err != nil {
		return err
	}
	b := verlBatch(c, p)
	metrics := map[string]float64{}
	off, err := loss.OffPolicy(b.Offsets, b.Mask, b.Logprobs, b.Behaviour)
	if err != nil {
		return err
	}
	maps.Copy(metrics, off)
	if k.Weight != "" {
		w, err := weightMetrics(k, b.Offsets, b.Mask, b.Logprobs, b.Behaviour)
		if err != nil {
			return err
		}
		maps.Copy(metrics, w)
	}
	var corrected loss.Corrected
	if err := loss.Correct(k, b.Offsets, b.Mask, b.Logprobs, b.Behaviour, &corrected); err != nil {
		return err
	}
	metrics["rollout_is_batch_norm_factor"] = corrected.MeanWeight
	if len(k.Rules) > 0 {
		rejected, err := rulesMetrics(rc, k, b, b.Logprobs, &corrected)
		if err != nil {
			return err
		}
		maps.Copy(metrics, rejected)
	}
	prefixed := map[string]float64{}
	for name, v := range metrics {
		prefixed["rollout_corr/"+name] = v
	}

	o := verlLoss(c, p)
	o.Correction, o.Old = k, loss.OldBehaviour
	name := "reinforce"
	if rc.text("loss_type") == "ppo_clip" {
		name = "ppo"
		o.Correction.Weight = ""
	}
	l, err := newLoss(name, o)
	if err != nil {
		return err
	}
	var out loss.Result
	if err := lossAsTrained(l, b, &out); err != nil {
		return err
	}
	c.want("loss", out.Loss)
	c.wantTokens(p, "grad_log_prob", out.Grad)
	maps.Copy(prefixed, metricValues(out.Metrics, verlNames, verlEpsilon))
	c.wantIn("metrics", prefixed)
	return nil
}

// arealCorrection reads AReaL's rejection_sampling.
func arealCorrection(c *golden) loss.Correction {
	rs := c.object("rejection_sampling")
	if rs == nil {
		return loss.Correction{Rules: []string{loss.WeightNone}, Weight: loss.WeightNone}
	}
	r := &golden{Params: rs}
	number := func(key string) string {
		if r.Params[key] == nil {
			return "-"
		}
		return strconv.FormatFloat(r.num(key, 0), 'g', -1, 64)
	}
	metric := strings.TrimPrefix(r.text("metric"), "kl_")
	over, weight := "token", loss.WeightToken
	if r.text("level") == "sequence" {
		over = "mean"
		if agg := r.text("agg"); agg != "" {
			over = agg
		}
		if metric == "ratio" {
			weight = loss.WeightGeometric
		}
	}
	rule := strings.Join([]string{r.text("action"), over, metric, number("lower"), number("upper")}, " ")
	return loss.Correction{Of: loss.OfProximal, Weight: weight, Rules: []string{rule}}
}

func arealRejection(c *golden) error {
	p := c.packed("loss_mask")
	var out loss.Corrected
	err := loss.Correct(arealCorrection(c), p.offsets, p.mask("loss_mask"), p.tokens("proximal_logprobs"),
		p.tokens("old_logprobs"), &out)
	if err != nil {
		return err
	}
	c.wantTokens(p, "loss_mask", floats(out.Mask))
	c.wantTokens(p, "behave_imp_weight", out.Weights)
	c.want("filtered_fraction", float64(out.Rejected+out.Clamped)/max(1, float64(out.Tokens)))
	return nil
}

func m2po(c *golden) error {
	p := c.packed("loss_mask")
	var out loss.Corrected
	k := loss.Correction{M2Threshold: c.num("m2_threshold", 0)}
	err := loss.Correct(k, p.offsets, p.mask("loss_mask"), p.tokens("proximal_logprobs"), p.tokens("old_logprobs"), &out)
	if err != nil {
		return err
	}
	c.wantTokens(p, "loss_mask", floats(out.Mask))
	return nil
}

func proximalApproximation(c *golden) error {
	p := c.packed("versions")
	var versions []int32
	for _, v := range p.tokens("versions") {
		versions = append(versions, int32(v))
	}
	lp, mu := p.tokens("logprobs"), p.tokens("old_logprobs")
	for _, method := range []string{loss.ApproximateLogLinear, loss.ApproximateLinear, loss.ApproximateRollout} {
		out := make([]float64, len(lp))
		if err := loss.Approximate(method, int64(c.num("current_version", 0)), versions, lp, mu, out); err != nil {
			return err
		}
		c.wantTokens(p, method, out)
	}
	return nil
}

// decoupledPPO is AReaL's loss, in its present form and in that with behav_imp_weight_cap.
func decoupledPPO(c *golden) error {
	p := c.packed("loss_mask")
	o := lossKeys{
		Level: c.text("importance_sampling_level"), ClipLow: c.num("eps_clip", 0.2),
		ClipHigh: c.num("eps_clip_higher", c.num("eps_clip", 0.2)), DualClip: c.num("c_clip", loss.Off), LogRatioClamp: loss.Off,
		Correction: arealCorrection(c),
	}
	if limit, ok := c.Params["behav_imp_weight_cap"]; ok {
		o.Correction = loss.Correction{Weight: loss.WeightToken, Rules: []string{loss.WeightNone}}
		o.SumAllAdvantages = c.Inputs["cu_seqlens"] == nil
		if limit != nil {
			o.Correction.Rules = []string{"zero token ratio - " + strconv.FormatFloat(number(limit), 'g', -1, 64)}
		}
	}
	b := &loss.Batch{
		Offsets: p.offsets, Mask: p.mask("loss_mask"), Logprobs: p.tokens("logprobs"), Proximal: p.tokens("proximal_logprobs"),
		Behaviour: p.tokens("old_logprobs"), Advantages: p.tokens("advantages"),
	}
	l, err := newLoss("decoupled_ppo", o)
	if err != nil {
		return err
	}
	out := loss.Result{Tokens: &loss.Tokens{}}
	if err := lossAsTrained(l, b, &out); err != nil {
		return err
	}
	c.want("loss", out.Loss)
	c.wantTokens(p, "grad_logprobs", out.Grad)
	c.wantTokens(p, "importance_weight", out.Tokens.Ratio)
	c.wantTokens(p, "clip_mask", floats(out.Tokens.Clipped))
	c.wantTokens(p, "dual_clip_mask", floats(out.Tokens.DualClipped))
	c.wantTokens(p, "behave_imp_weight", out.Tokens.Weight)
	behaved := make([]float64, len(b.Mask))
	for t, w := range out.Tokens.Weight {
		if w > 0 {
			behaved[t] = 1
		}
	}
	c.wantTokens(p, "behave_mask", behaved)
	c.wantTokens(p, "token_loss", loggedLoss(c, o, b, out.Tokens))
	kl, behaveKL := make([]float64, len(b.Mask)), make([]float64, len(b.Mask))
	for t := range kl {
		kl[t] = b.Logprobs[t] - b.Proximal[t]
		behaveKL[t] = (b.Proximal[t] - b.Behaviour[t]) * behaved[t]
	}
	c.wantTokens(p, "approx_kl", kl)
	c.wantTokens(p, "behave_approx_kl", behaveKL)
	metrics := metricValues(out.Metrics, nil, 0)
	c.want("filtered_fraction", metrics["rejected"]+metrics["clamped"])
	tokens := max(1, float64(loss.Count(b.Offsets, b.Mask).Tokens))
	c.want("clip_ratio", out.Metrics["clip_fraction"].Sum/tokens)
	c.want("dual_clip_ratio", out.Metrics["dual_clip_fraction"].Sum/tokens)
	return nil
}

// loggedLoss is what AReaL logs a token: without a correction, masked tokens stand in it with ratio 0, although they
// take no part in the loss.
func loggedLoss(c *golden, o lossKeys, b *loss.Batch, tokens *loss.Tokens) []float64 {
	out := append([]float64{}, tokens.Loss...)
	if _, capped := c.Params["behav_imp_weight_cap"]; capped || c.object("rejection_sampling") != nil {
		return out
	}
	advantages := rowAdvantages(o.Level, b)
	o.Level, o.Correction = loss.LevelToken, loss.Correction{}
	for t, m := range b.Mask {
		if m == 0 {
			out[t] = lossAtRatioZero(o, advantages[t])
		}
	}
	return out
}

// lossAtRatioZero is ppo's loss of a token that the policy has come to give no probability.
func lossAtRatioZero(o lossKeys, advantage float64) float64 {
	l, err := newLoss("ppo", o)
	if err != nil {
		panic(err)
	}
	var out loss.Result
	err = l.Loss(&loss.Batch{
		Offsets: []int{0, 1}, Mask: []uint8{1}, Logprobs: []float64{math.Inf(-1)}, Proximal: []float64{-1}, Advantages: []float64{advantage},
	}, &out)
	if err != nil {
		panic(err)
	}
	return out.Loss
}

// rowAdvantages are AReaL's advantages a token: at level sequence the row's mean, 0 where masked.
func rowAdvantages(level string, b *loss.Batch) []float64 {
	out := append([]float64{}, b.Advantages...)
	if level != loss.LevelSequence {
		return out
	}
	for i := range len(b.Offsets) - 1 {
		lo, hi := b.Offsets[i], b.Offsets[i+1]
		mean := stats.Mean(b.Advantages[lo:hi], b.Mask[lo:hi], 0)
		for t := lo; t < hi; t++ {
			out[t] = mean * float64(b.Mask[t])
		}
	}
	return out
}

func arealSAPO(c *golden) error {
	p := c.packed("loss_mask")
	o := lossKeys{
		Level: c.text("importance_sampling_level"), TauPositive: c.num("tau_pos", 0), TauNegative: c.num("tau_neg", 0),
		LogRatioClamp: loss.Off, Aggregation: loss.Aggregation{Mode: loss.TokenMean},
	}
	l, err := newLoss("sapo", o)
	if err != nil {
		return err
	}
	b := &loss.Batch{
		Offsets: p.offsets, Mask: p.mask("loss_mask"), Logprobs: p.tokens("logprobs"), Behaviour: p.tokens("old_logprobs"),
		Advantages: p.tokens("advantages"),
	}
	out := loss.Result{Tokens: &loss.Tokens{}}
	if err := lossAsTrained(l, b, &out); err != nil {
		return err
	}
	c.want("loss", out.Loss)
	c.wantTokens(p, "grad_logprobs", out.Grad)
	advantages := rowAdvantages(o.Level, b)
	ratios, gates := out.Tokens.Ratio, make([]float64, len(b.Mask))
	for t, m := range b.Mask { // AReaL logs the ratios of masked tokens too
		if m == 0 && o.Level != loss.LevelSequence {
			ratios[t] = math.Exp(b.Logprobs[t] - b.Behaviour[t])
		}
		gates[t], _ = loss.SoftGate(ratios[t], advantages[t], o.TauPositive, o.TauNegative)
	}
	c.wantTokens(p, "importance_weight", ratios)
	c.wantTokens(p, "soft_gate", gates)
	return nil
}
