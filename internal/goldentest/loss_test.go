package goldentest

import (
	"github.com/weir-rl/weir/trainer/loss"
)

// verlEpsilon is what verl adds to the counts of its masked means.
const verlEpsilon = 1e-8

// aggregation reads the aggregation that a case is under: verl's, unless impl says otherwise.
func aggregation(c *golden, p packed) loss.Aggregation {
	width := 0
	for i := range len(p.offsets) - 1 {
		width = max(width, p.offsets[i+1]-p.offsets[i])
	}
	a := loss.Aggregation{
		Mode: c.text("loss_agg_mode"), Length: c.num("loss_scale_factor", float64(width)),
		LengthEpsilon: verlEpsilon, EmptyNaN: true,
	}
	switch c.text("impl") {
	case "agentr1":
		a.EmptyNaN = false
	case "agentr1_legacy":
		a.LengthEpsilon, a.TokenEpsilon, a.CountEmptyRows = 0, verlEpsilon, true
	}
	return a
}

// counts reads the global denominators.
func counts(c *golden) loss.Counts {
	return loss.Counts{Tokens: int(c.num("batch_num_tokens", 0)), Rows: int(c.num("global_batch_size", 0))}
}

// overWorkers multiplies a loss and its gradients by the number of workers whose gradients verl averages afterwards, where
// the aggregation divides by all workers' tokens or rows. Weir adds gradients up: this factor is the test's own code.
func overWorkers(c *golden, a loss.Aggregation, out *loss.Result) {
	workers := c.num("dp_size", 1)
	if a.Mode == loss.SeqMeanTokenSumNorm {
		return
	}
	out.Loss *= workers
	for t := range out.Grad {
		out.Grad[t] *= workers
	}
}

// lossAggregation is the loss whose token losses are any numbers: cross entropy of their negatives.
func lossAggregation(c *golden) error {
	p := c.packed("loss_mask")
	b := &loss.Batch{Offsets: p.offsets, Mask: p.mask("loss_mask"), Counts: counts(c)}
	for _, v := range p.tokens("loss_mat") {
		b.Logprobs = append(b.Logprobs, -v)
	}
	a := aggregation(c, p)
	l, err := newLoss("cross_entropy", lossKeys{Aggregation: a, KeepNonFinite: true})
	if err != nil {
		return err
	}
	var out loss.Result
	if err := l.Loss(b, &out); err != nil {
		return err
	}
	overWorkers(c, a, &out)
	c.want("loss", out.Loss)
	for t := range out.Grad {
		out.Grad[t] *= -1 // by the token loss, not by the log-probability
	}
	c.wantTokens(p, "grad_loss_mat", out.Grad)
	return nil
}

// verlLoss are the options under which a loss is verl's.
func verlLoss(c *golden, p packed) lossKeys {
	o := lossKeys{
		Aggregation: aggregation(c, p), KeepNonFinite: true, DualClip: c.num("clip_ratio_c", 0), LogRatioClamp: 20,
		ClipLow:  c.num("clip_ratio_low", c.num("clip_ratio", 0)),
		ClipHigh: c.num("clip_ratio_high", c.num("clip_ratio", 0)),
	}
	return o
}

// verlBatch reads the inputs of verl's losses.
func verlBatch(c *golden, p packed) *loss.Batch {
	info := &golden{Params: c.object("global_batch_info")}
	return &loss.Batch{
		Offsets: p.offsets, Mask: p.mask("response_mask"), Logprobs: p.tokens("log_prob"), Proximal: p.tokens("old_log_prob"),
		Behaviour: p.tokens("old_log_prob"), Advantages: p.tokens("advantages"), Weights: p.tokens("rollout_is_weights"),
		Counts: counts(info),
	}
}

// verlNames are verl's names of our metrics.
var verlNames = map[string]string{
	"clip_fraction": "actor/pg_clipfrac", "dual_clip_fraction": "actor/pg_clipfrac_lower", "clip_fraction_low": "actor/pg_clipfrac_lower",
	"approx_kl": "actor/ppo_kl", "abs_log_ratio": "actor/ppo_kl",
}

// metricValues are means under the authors' names, with epsilon in the counts.
func metricValues(m loss.Metrics, names map[string]string, epsilon float64) map[string]float64 {
	out := map[string]float64{}
	for name, mean := range m {
		key := name
		if renamed, ok := names[name]; ok {
			key = renamed
		}
		out[key] = mean.Sum / (mean.Count + epsilon)
		if mean.Count+epsilon == 0 {
			out[key] = 0
		}
	}
	return out
}

// lossAsTrained is the loss of a whole mini-batch by the way that a run takes: with the counts of the mini-batch, and
// with its plan where the loss looks beyond single rows.
func lossAsTrained(l loss.Policy, b *loss.Batch, out *loss.Result) error {
	plan := &loss.Plan{}
	if l.Span() != loss.SpanRow {
		var err error
		if plan, err = l.Plan(b); err != nil {
			return err
		}
		b.Plan = plan
	}
	if b.Counts.Tokens == 0 && b.Counts.Rows == 0 {
		b.Counts = loss.Count(b.Offsets, b.Mask)
	}
	if err := l.Loss(b, out); err != nil {
		return err
	}
	out.Metrics.Add(plan.Metrics)
	return nil
}

// policy runs the named loss and compares loss, gradient and metrics.
func policy(name string, change func(c *golden, o *lossKeys)) func(*golden) error {
	return func(c *golden) error {
		p := c.packed("response_mask")
		o := verlLoss(c, p)
		if change != nil {
			change(c, &o)
		}
		l, err := newLoss(name, o)
		if err != nil {
			return err
		}
		var out loss.Result
		if err := lossAsTrained(l, verlBatch(c, p), &out); err != nil {
			return err
		}
		overWorkers(&golden{Params: c.object("global_batch_info")}, o.Aggregation, &out)
		c.want("loss", out.Loss)
		c.wantTokens(p, "grad_log_prob", out.Grad)
		names := verlNames
		if name == "ppo" && c.Params["clip_ratio_c"] != nil && c.Expected["metrics"].(map[string]any)["pg_clipfrac"] != nil {
			names = map[string]string{
				"clip_fraction": "pg_clipfrac", "dual_clip_fraction": "pg_clipfrac_lower", "approx_kl": "ppo_kl",
			}
		}
		c.wantIn("metrics", metricValues(out.Metrics, names, verlEpsilon))
		return nil
	}
}

// off turns an option that the authors have not off.
func off(options ...*float64) {
	for _, o := range options {
		*o = loss.Off
	}
}

func lossRunners() map[string]func(*golden) error {
	return map[string]func(*golden) error{
		"loss_agg":              lossAggregation,
		"loss_ppo_vanilla_verl": policy("ppo", nil),
		"loss_ppo_agentr1_legacy": policy("ppo", func(c *golden, o *lossKeys) {
			off(&o.LogRatioClamp)
			o.Aggregation.LengthEpsilon, o.Aggregation.TokenEpsilon, o.Aggregation.CountEmptyRows = 0, verlEpsilon, true
		}),
		"loss_gspo_verl": policy("gspo", func(_ *golden, o *lossKeys) {
			o.LogRatioClamp, o.Aggregation.Mode = 10, loss.SeqMeanTokenMean
		}),
		"loss_sapo_verl": policy("sapo", func(c *golden, o *lossKeys) {
			o.TauPositive, o.TauNegative = c.num("tau_pos", 0), c.num("tau_neg", 0)
			o.Aggregation.Mode = loss.SeqMeanTokenMean
		}),
		"loss_cispo_verl": policy("cispo", nil),
		"loss_geo_mean_verl": policy("gmpo", func(_ *golden, o *lossKeys) {
			o.Aggregation.Mode, o.Aggregation.CountEmptyRows = loss.SeqMeanTokenSum, true
		}),
		"loss_clip_cov_verl": policy("clip_cov", func(c *golden, o *lossKeys) {
			off(&o.LogRatioClamp)
			o.CovRatio, o.CovLow, o.CovHigh = c.num("clip_cov_ratio", 0), c.num("clip_cov_lb", 0), c.num("clip_cov_ub", 0)
		}),
		"loss_kl_cov_verl": policy("kl_cov", func(c *golden, o *lossKeys) {
			off(&o.LogRatioClamp)
			o.CovRatio, o.CovCoef = c.num("kl_cov_ratio", 0), c.num("ppo_kl_coef", 0)
		}),
		"loss_reinforce_verl": policy("reinforce", nil),
		"loss_gpg_verl":       policy("gpg", nil),
		"loss_bypass_verl":    bypass,
		"loss_value_verl":     valueVerl,
		"loss_value_areal":    valueAReaL,
		"kl_penalty_verl":     klPenalty,
		"kl_estimator_areal":  klEstimator,
		"kl_in_reward_verl":   klInReward,
		"kl_controller_verl":  klController,
	}
}

func valueVerl(c *golden) error {
	p := c.packed("response_mask")
	v := loss.DefaultValue()
	v.Clip, v.Aggregation = c.num("cliprange_value", 0.5), aggregation(c, p)
	b := &loss.Batch{
		Offsets: p.offsets, Mask: p.mask("response_mask"), Values: p.tokens("vpreds"), OldValues: p.tokens("values"),
		Returns: p.tokens("returns"),
	}
	var out loss.Result
	if err := v.Add(b, &out); err != nil {
		return err
	}
	c.want("loss", out.Loss)
	c.wantTokens(p, "grad_vpreds", out.GradValues)
	c.want("clipfrac", metricValues(out.Metrics, nil, verlEpsilon)["value_clip_fraction"])
	return nil
}

func valueAReaL(c *golden) error {
	p := c.packed("response_mask")
	v := loss.DefaultValue()
	v.Clip = c.num("value_eps_clip", 0.5)
	v.Aggregation.EmptyNaN = true
	if c.text("loss_fn_type") == "huber" {
		v.Huber = c.num("huber_delta", 10)
	}
	b := &loss.Batch{
		Offsets: p.offsets, Mask: p.mask("response_mask"), Values: p.tokens("vpreds"), OldValues: p.tokens("values"),
		Returns: p.tokens("returns"),
	}
	if !c.flag("use_mask") {
		for t := range b.Mask {
			b.Mask[t] = 1
		}
	}
	var out loss.Result
	if err := v.Add(b, &out); err != nil {
		return err
	}
	c.want("loss", out.Loss)
	c.wantTokens(p, "grad_vpreds", out.GradValues)
	losses, clipped := make([]float64, len(b.Mask)), make([]float64, len(b.Mask))
	for t := range losses {
		l, _, clip := v.At(b.Values[t], b.OldValues[t], b.Returns[t])
		losses[t] = l
		if clip && b.Mask[t] != 0 {
			clipped[t] = 1
		}
	}
	c.wantTokens(p, "token_loss", losses)
	c.wantTokens(p, "clip_mask", clipped)
	return nil
}

// verlKinds are verl's names of the estimators.
var verlKinds = map[string]string{
	"kl": "k1", "mse": "k2", "low_var_kl": "k3", "kl+": "k1+", "mse+": "k2+", "low_var_kl+": "k3+",
}

func verlKL(c *golden) loss.KL {
	k := loss.DefaultKL()
	k.Kind = c.text("kl_penalty")
	if kind, ok := verlKinds[k.Kind]; ok {
		k.Kind = kind
	}
	return k
}

func klPenalty(c *golden) error {
	p := c.packed("response_mask")
	k := verlKL(c)
	if err := k.Validate(); err != nil {
		return err
	}
	lp, ref := p.tokens("logprob"), p.tokens("ref_logprob")
	values := make([]float64, len(lp))
	for t := range lp {
		values[t], _ = k.At(lp[t], ref[t])
	}
	c.wantTokens(p, "kl", values)
	b := &loss.Batch{Offsets: p.offsets, Mask: p.mask("response_mask"), Logprobs: lp, Reference: ref}
	out := loss.Result{Grad: make([]float64, len(lp))}
	if err := k.AddLoss(1, aggregation(c, p), b, &out); err != nil {
		return err
	}
	c.want("kl_loss", out.Loss)
	c.wantTokens(p, "grad_logprob", out.Grad)
	return nil
}

func klEstimator(c *golden) error {
	p := c.packed("response_mask")
	k := arealKL(c.text("estimator"), c.flag("apply_clamp"))
	lp, ref, mask := p.tokens("logprob"), p.tokens("ref_logprob"), p.mask("response_mask")
	values, grad := make([]float64, len(lp)), make([]float64, len(lp))
	for t := range lp {
		value, slope := k.At(lp[t], ref[t])
		values[t], grad[t] = value, slope*float64(mask[t])
	}
	c.wantTokens(p, "kl", values)
	c.wantTokens(p, "grad_masked_sum", grad)
	return nil
}

// arealKL bounds every estimator's value, and no exponent.
func arealKL(kind string, clamp bool) loss.KL {
	k := loss.DefaultKL()
	k.Kind, k.LogClamp, k.ClampAll = kind, loss.Off, true
	if !clamp {
		k.Clamp = loss.Off
	}
	return k
}

func klInReward(c *golden) error {
	p := c.packed("response_mask")
	control := c.sub("kl_ctrl")
	k := verlKL(c)
	k.Target, k.Horizon = control.num("target_kl", 0), control.num("horizon", 1)
	coef := control.num("kl_coef", 0)
	rewards := p.tokens("token_level_scores")
	kl, err := k.Penalize(coef, p.offsets, p.mask("response_mask"), nil, rewards, p.tokens("old_log_probs"),
		p.tokens("ref_log_prob"), rewards)
	if err != nil {
		return err
	}
	c.wantTokens(p, "token_level_rewards", rewards)
	c.wantIn("metrics", map[string]float64{"actor/reward_kl_penalty": kl, "actor/reward_kl_penalty_coeff": coef})
	c.want("kl_coef_after", k.Adapt(coef, kl, float64(len(p.offsets)-1)))
	return nil
}

func klController(c *golden) error {
	k := loss.DefaultKL()
	k.Target, k.Horizon = c.num("target_kl", 0), c.num("horizon", 1)
	coef := c.num("kl_coef", 0)
	var coefs []float64
	steps := vector(c.Inputs["n_steps"])
	for i, kl := range vector(c.Inputs["current_kl"]) {
		coef = k.Adapt(coef, kl, steps[i])
		coefs = append(coefs, coef)
	}
	c.want("kl_coef", coefs)
	return nil
}
