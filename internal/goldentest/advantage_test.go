package goldentest

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/trainer/advantage"
)

// verlOptions are those under which the estimators are verl's.
func verlOptions(c *golden) estimatorKeys {
	o := defaultEstimatorKeys()
	o.Gamma, o.Lambda = c.num("gamma", 1), c.num("lam", 1)
	o.MaskRewards = false
	o.Single = advantage.SingleReward
	o.CountEmpty, o.CountEpsilon = true, 1e-8
	o.DivideByStd = c.Params["norm_adv_by_std"] != false
	o.StdEpsilon = c.num("epsilon", 1e-6)
	return o
}

// agentR1Options mask the rewards.
func agentR1Options(c *golden) estimatorKeys {
	o := verlOptions(c)
	o.MaskRewards = true
	return o
}

// batch reads the inputs that verl's and Agent-R1's estimators share.
func (c *golden) batch(p packed) *advantage.Batch {
	return &advantage.Batch{
		Offsets: p.offsets, Mask: p.mask("response_mask"), Rewards: p.tokens("token_level_rewards"),
		Group: ids(c.Inputs["index"]), Trajectory: ids(c.Inputs["trajectory_uids"]), Step: ints(c.Inputs["step_indices"]),
		Values: p.tokens("values"), Baselines: vector(c.Inputs["reward_baselines"]),
	}
}

// estimate runs the named estimator and compares advantages and returns.
func (c *golden) estimate(name string, o estimatorKeys, change func(p packed, b *advantage.Batch)) error {
	p := c.packed("response_mask")
	b := c.batch(p)
	if change != nil {
		change(p, b)
	}
	e, err := newEstimator(name, o)
	if err != nil {
		return err
	}
	var out advantage.Result
	if err := e.Estimate(b, &out); err != nil {
		return err
	}
	c.wantTokens(p, "advantages", out.Advantages)
	c.wantTokens(p, "returns", out.Returns)
	return nil
}

// estimator runs an estimator under options that do not depend on more than the case's parameters.
func estimator(name string, options func(*golden) estimatorKeys, change func(c *golden, o *estimatorKeys)) func(*golden) error {
	return func(c *golden) error {
		o := options(c)
		if change != nil {
			change(c, &o)
		}
		return c.estimate(name, o, nil)
	}
}

func advantageRunners() map[string]func(*golden) error {
	return map[string]func(*golden) error{
		"adv_grpo_verl":               estimator("grpo", verlOptions, nil),
		"adv_grpo_agentr1_legacy":     estimator("grpo", agentR1Options, nil),
		"adv_grpo_trajectory_agentr1": estimator("grpo", agentR1Options, nil),
		"adv_grpo_passk_verl":         estimator("grpo_passk", verlOptions, nil),
		"adv_grpo_vectorized_verl": estimator("grpo", verlOptions, func(c *golden, o *estimatorKeys) {
			o.VarianceFloor = o.StdEpsilon
		}),
		"adv_opo_verl": estimator("opo", verlOptions, func(_ *golden, o *estimatorKeys) { o.EmptyNaN = true }),
		"adv_gpg_verl": estimator("gpg", verlOptions, func(c *golden, o *estimatorKeys) {
			o.GPGNorm = c.num("f_norm", 1)
		}),
		"adv_rloo": estimator("rloo", verlOptions, func(c *golden, o *estimatorKeys) {
			o.MaskRewards = c.text("impl") == "agentr1_legacy"
			if c.text("impl") == "vectorized" {
				o.Single = advantage.SingleZero
			}
		}),
		"adv_remax_verl": estimator("remax", verlOptions, func(_ *golden, o *estimatorKeys) {
			o.MaskAdvantages, o.MaskReturns = false, false
		}),
		"adv_reinforce_pp": estimator("reinforce_pp", verlOptions, func(c *golden, o *estimatorKeys) {
			o.ResetAtMask = c.text("impl") == "verl"
			o.CarryMasked, o.MaskReturns = o.ResetAtMask, false
		}),
		"adv_reinforce_pp_baseline": estimator("reinforce_pp_baseline", verlOptions, func(c *golden, o *estimatorKeys) {
			o.MaskRewards = c.text("impl") == "agentr1_legacy"
			o.MaskAdvantages = !o.MaskRewards
		}),
		"adv_gae_verl":           gaeUnwhitened(true),
		"adv_gae_agentr1_legacy": gaeUnwhitened(false),
		// Agent-R1's function without its advantage mask.
		"adv_gae_response_mask_agentr1_legacy": gaeUnwhitened(false),
		"adv_gae_step_agentr1":                 gaeStep,
		"adv_gae_areal":                        gaeAReaL,
		"adv_otb_verl":                         tokenBaseline,
		"adv_prime_rloo_verl":                  primeRLOO,
		"adv_prime_rl":                         primeRL,
		"prime_norm_agentr1_legacy":            primeNorm,
		"process_rewards_agentr1_legacy":       processRewards,
		"adv_bilevel_l0":                       bilevel,
		"adv_gae_token_multistep_agentr1": estimator("gae", agentR1Options, func(_ *golden, o *estimatorKeys) {
			o.MaskAdvantages = false
		}),
	}
}

// gaeUnwhitened also compares the advantages before whitening, which are returns less values.
func gaeUnwhitened(carry bool) func(*golden) error {
	return func(c *golden) error {
		o := verlOptions(c)
		o.CarryMasked, o.MaskAdvantages, o.MaskReturns = carry, false, false
		p := c.packed("response_mask")
		b := c.batch(p)
		e, err := newEstimator("gae", o)
		if err != nil {
			return err
		}
		var out advantage.Result
		if err := e.Estimate(b, &out); err != nil {
			return err
		}
		c.wantTokens(p, "advantages", out.Advantages)
		c.wantTokens(p, "returns", out.Returns)
		raw := make([]float64, len(out.Returns))
		for t, g := range out.Returns {
			raw[t] = g - b.Values[t]
		}
		c.wantTokens(p, "advantages_unwhitened", raw)
		return nil
	}
}

// gaeStep takes a step's value from its first position, masked or not.
func gaeStep(c *golden) error {
	o := agentR1Options(c)
	o.StepGamma, o.StepLambda = o.Gamma, o.Lambda
	return c.estimate("gae_step", o, func(p packed, b *advantage.Batch) {
		for i := range b.Rows() {
			b.StepValues = append(b.StepValues, b.Values[p.offsets[i]])
		}
	})
}

func bilevel(c *golden) error {
	o := verlOptions(c)
	o.StepGamma, o.StepLambda = c.num("step_gamma", 1), c.num("step_lam", 1)
	o.Gamma, o.Lambda = c.num("token_gamma", 1), c.num("token_lam", 1)
	if c.text("token_level_adv_estimator") == "gae" {
		o.TokenCredit = advantage.ByGAE
	}
	if c.text("step_level_adv_estimator") == "gae" {
		o.StepCredit = advantage.ByGAE
	}
	o.CarryMasked, o.MaskAdvantages, o.MaskReturns = true, false, false
	return c.estimate("bilevel", o, func(p packed, b *advantage.Batch) {
		b.Trajectory, b.Step = ids(c.Inputs["uuids"]), ints(c.Inputs["step_indexes"])
		b.Values, b.StepValues = p.tokens("token_level_values"), vector(c.Inputs["step_level_values"])
		b.StepRewards = vector(c.Inputs["step_level_rewards"])
		returns, err := stepReturns(b, o)
		if err != nil {
			c.problems = append(c.problems, err.Error())
			return
		}
		rewards := append([]float64{}, b.Rewards...)
		placeReturns(b, returns, rewards)
		c.wantTokens(p, "token_level_rewards_after", rewards)
	})
}

// stepReturns are those of the estimator of steps that o.StepCredit names, one a row.
func stepReturns(b *advantage.Batch, o estimatorKeys) ([]float64, error) {
	e, err := newEstimator(map[string]string{advantage.ByGAE: "gae_step", advantage.ByReturn: "reinforce_step"}[o.StepCredit], o)
	if err != nil {
		return nil, err
	}
	var out advantage.Result
	if err := e.Estimate(b, &out); err != nil {
		return nil, err
	}
	var returns []float64
	for _, at := range b.Offsets[:b.Rows()] {
		returns = append(returns, out.Returns[at]) // each token of a row has them, as o.MaskReturns is off
	}
	return returns, nil
}

// placeReturns puts each row's return in place of the reward of its last action token, where a trajectory's outcome stands.
func placeReturns(b *advantage.Batch, returns, rewards []float64) {
	for i, g := range returns {
		if last := bytes.LastIndexByte(b.Mask[b.Offsets[i]:b.Offsets[i+1]], 1); last >= 0 {
			rewards[b.Offsets[i]+last] = g
		}
	}
}

func tokenBaseline(c *golden) error {
	o := verlOptions(c)
	o.MaskRewards, o.MaskReturns = true, false
	o.ByPosition, o.ZeroTail = !c.flag("multi_turn"), c.flag("handle_zero_tail")
	return c.estimate("optimal_token_baseline", o, func(p packed, b *advantage.Batch) {
		b.Logprobs, b.ProbSquares = p.tokens("old_log_probs"), p.tokens("sum_pi_squared")
		b.Weights = p.tokens("rollout_is_weights")
	})
}

// primeRLOO places the accuracy at the row's last action token.
func primeRLOO(c *golden) error {
	o := verlOptions(c)
	o.MaskRewards, o.MaskAdvantages, o.MaskReturns = true, false, false
	o.ProcessWeight, o.OutcomeWeight = c.num("reward_dpo_coef", 5), c.num("reward_gt_coef", 5)
	return c.estimate("prime_rloo", o, func(p packed, b *advantage.Batch) {
		b.ProcessRewards, b.Rewards = p.tokens("rm_scores"), make([]float64, len(b.Mask))
		if b.ProcessRewards == nil {
			b.ProcessRewards = make([]float64, len(b.Mask))
		}
		if acc := vector(c.Inputs["acc"]); acc != nil {
			placeReturns(b, acc, b.Rewards)
		}
		b.Group = consecutive(b.Rows(), int(c.num("n_samples", 1)))
	})
}

// gaeAReaL goes the way of the trainer: reward shaping, KL in the reward, GAE, normalization. Positions are those of
// the next token, which the inputs' masks and log-probabilities are rolled to.
func gaeAReaL(c *golden) error {
	p := c.packed("loss_mask")
	mask := rolled(c.Inputs["loss_mask"])
	logprobs := rolled(c.Inputs["logprobs"])
	b := &advantage.Batch{Offsets: p.offsets, Values: p.tokens("values")}
	for _, m := range mask {
		b.Mask = append(b.Mask, uint8(m))
	}
	reference := p.tokens("ref_logp")
	if reference == nil {
		reference = make([]float64, len(mask))
	}
	if b.Values == nil {
		b.Values = make([]float64, len(mask))
	}
	for t, m := range mask {
		logprobs[t], reference[t] = logprobs[t]*m, reference[t]*m
	}
	scores, err := arealScores(c)
	if err != nil {
		return err
	}
	kl := arealKL(c.text("kl_estimator"), true)
	rewards := make([]float64, len(mask))
	if _, err := kl.Penalize(c.num("kl_ctl", 0), b.Offsets, b.Mask, nil, rewards, logprobs, reference, rewards); err != nil {
		return err
	}
	c.wantTokens(p, "kl_rewards", rewards)
	b.Rewards = append([]float64{}, rewards...)
	b.Bootstrap = make([]float64, b.Rows())
	for i, attention := range matrix(c.Inputs["attention_mask"]) {
		lo, width := b.Offsets[i], len(attention)
		length := 0
		for _, a := range attention {
			length += int(a)
		}
		b.Rewards[lo+length-1] = 0
		cut := length == width
		if cut {
			b.Bootstrap[i] = b.Values[lo+width-1]
		}
		if !cut || !c.flag("mask_no_eos_with_zero") {
			b.Rewards[lo+max(length-2, 0)] += scores[i]
		}
	}
	c.wantTokens(p, "tot_rewards", b.Rewards)
	c.wantTokens(p, "loss_mask", floats(b.Mask))
	c.wantTokens(p, "logprobs", logprobs)

	o := defaultEstimatorKeys()
	o.Gamma, o.Lambda = c.num("discount", 1), c.num("gae_lambda", 1)
	o.CarryMasked, o.MaskAdvantages, o.MaskReturns = true, false, false
	o.Whiten = false
	e, err := newEstimator("gae", o)
	if err != nil {
		return err
	}
	var out advantage.Result
	if err := e.Estimate(b, &out); err != nil {
		return err
	}
	c.wantTokens(p, "returns", out.Returns)
	if norm := c.object("adv_norm"); norm != nil {
		n := &golden{Params: norm}
		groups := consecutive(b.Rows(), int(n.num("group_size", 1)))
		if err := arealNormalization(n).Apply(out.Advantages, b.Offsets, b.Mask, groups, nil, out.Advantages); err != nil {
			return err
		}
	}
	c.wantTokens(p, "advantages", out.Advantages)
	return nil
}

// rolled moves each row of an input one place to the left, its first entry to the end.
func rolled(v any) []float64 {
	var out []float64
	for _, row := range matrix(v) {
		out = append(append(out, row[1:]...), row[0])
	}
	return out
}

// arealScores are the rows' outcome rewards, shaped and normalized.
func arealScores(c *golden) ([]float64, error) {
	shape := rewards.Shape{
		Bias: c.num("reward_bias", 0), Scale: c.num("reward_scaling", 1), Clip: c.num("reward_clip", 20),
	}
	scores := vector(c.Inputs["rewards"])
	offsets := []int{0}
	for i, r := range scores {
		scores[i] = shape.Apply(r)
		offsets = append(offsets, i+1)
	}
	norm := c.object("reward_norm")
	if norm == nil {
		return scores, nil
	}
	n := &golden{Params: norm}
	groups := consecutive(len(scores), int(n.num("group_size", 1)))
	return scores, arealNormalization(n).Apply(scores, offsets, nil, groups, nil, scores)
}

// primeRL lays each trace out as a row, its nodes end to end.
func primeRL(c *golden) error {
	b := &advantage.Batch{Offsets: []int{0}}
	var agents []any
	episode := 0
	each(c.Inputs["groups"], func(g int, trace map[string]any) {
		if !trains(trace) {
			return
		}
		for _, node := range matrix(trace["node_masks"]) {
			for _, m := range node {
				b.Mask = append(b.Mask, uint8(m))
				b.Rewards = append(b.Rewards, 0)
			}
		}
		b.Offsets = append(b.Offsets, len(b.Mask))
		b.Group = append(b.Group, g)
		agents = append(agents, trace["agent"])
		b.Episode = append(b.Episode, episode)
	}, func() { episode++ })
	b.Agent = ids(agents)
	row := 0
	each(c.Inputs["groups"], func(_ int, trace map[string]any) {
		if trains(trace) {
			one := advantage.Batch{Offsets: b.Offsets[row : row+2], Mask: b.Mask}
			placeReturns(&one, []float64{number(trace["reward"])}, b.Rewards)
			row++
		}
	}, nil)

	o := defaultEstimatorKeys()
	name := c.text("algo")
	if name == "grpo" {
		name = "dr_grpo"
	}
	o.Decay = c.num("decay", 0.95)
	if lp := c.sub("length_penalty"); lp.Params != nil {
		o.LengthPenalty = advantage.LengthPenalty{
			OutputTokens: lp.num("num_output_tokens_weight", 0), InputTokens: lp.num("num_input_tokens_weight", 0),
			Turns: lp.num("num_turns_weight", 0),
		}
	}
	o.EpisodeAgents = texts(c.Params["episode_agents"])
	for _, agent := range agents {
		name, _ := agent.(string)
		b.Role = append(b.Role, name)
	}
	e, err := newEstimator(name, o)
	if err != nil {
		return err
	}
	var out advantage.Result
	if err := e.Estimate(b, &out); err != nil {
		return err
	}
	c.want("node_advantages", nodeAdvantages(c, b, &out))
	return nil
}

// trains says whether a trace takes part: an errored one, or one not to be trained on, is left out of its group.
func trains(trace map[string]any) bool {
	return trace["has_error"] != true && trace["trainable"] != false
}

// each walks groups, episodes and traces; after is called after each episode.
func each(groups any, trace func(group int, trace map[string]any), after func()) {
	for g, group := range groups.([]any) {
		for _, episode := range group.([]any) {
			for _, t := range episode.([]any) {
				trace(g, t.(map[string]any))
			}
			if after != nil {
				after()
			}
		}
	}
}

// nodeAdvantages shapes the result as [group][episode][trace][node][sampled token].
func nodeAdvantages(c *golden, b *advantage.Batch, out *advantage.Result) any {
	var groups []any
	row := 0
	for _, group := range c.Inputs["groups"].([]any) {
		var episodes []any
		for _, episode := range group.([]any) {
			var traces []any
			for _, t := range episode.([]any) {
				trace := t.(map[string]any)
				var nodes []any
				at := 0
				if trains(trace) {
					at = b.Offsets[row]
					row++
				}
				for _, node := range matrix(trace["node_masks"]) {
					var sampled []float64
					for range node {
						if trains(trace) {
							if b.Mask[at] != 0 {
								sampled = append(sampled, out.Advantages[at])
							}
							at++
						}
					}
					nodes = append(nodes, sampled)
				}
				traces = append(traces, nodes)
			}
			episodes = append(episodes, traces)
		}
		groups = append(groups, episodes)
	}
	return groups
}

func primeNorm(c *golden) error {
	p := c.packed("token_level_scores")
	x := p.tokens("token_level_scores")
	if err := advantage.NormalizeProcess(p.offsets, x, x); err != nil {
		return err
	}
	c.wantTokens(p, "normalized", x)
	return nil
}

// markerEnds are the positions, in characters, of the last character of each occurrence of marker in text: where a tool
// call ends, in Agent-R1. In Weir a producer names the token that ends a turn.
func markerEnds(text, marker string) []int {
	var ends []int
	at := 0
	for {
		before, after, found := strings.Cut(text, marker)
		if !found || marker == "" {
			return ends
		}
		at += utf8.RuneCountInString(before) + utf8.RuneCountInString(marker)
		ends = append(ends, at-1)
		text = after
	}
}

// placeProcess adds the j-th process reward of a row to the token that ends its j-th tool call. Calls that end outside the
// row, calls without a reward and rewards without a call are passed over.
func placeProcess(row []float64, ends []int, rewards []float64) {
	for j, end := range ends[:min(len(ends), len(rewards))] {
		if end >= 0 && end < len(row) {
			row[end] += rewards[j]
		}
	}
}

// processRewards reads one token a character.
func processRewards(c *golden) error {
	envRewards, attention := matrix(c.Inputs["env_rewards"]), matrix(c.Inputs["attention_mask"])
	prompt := int(c.num("prompt_length", 0))
	offsets, x := []int{0}, []float64{}
	for i, response := range texts(c.Inputs["responses"]) {
		row := make([]float64, len(attention[i])-prompt)
		valid := 0
		for _, a := range attention[i][prompt:] {
			valid += int(a)
		}
		if c.flag("use_process_rewards") {
			placeProcess(row[:valid], markerEnds(response, c.text("tool_call_end")), envRewards[i])
		}
		x = append(x, row...)
		offsets = append(offsets, len(x))
	}
	if err := advantage.NormalizeProcess(offsets, x, x); err != nil {
		return err
	}
	c.want("process_rewards", split(offsets, x))
	return nil
}
