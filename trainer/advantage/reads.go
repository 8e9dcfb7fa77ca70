package advantage

import "slices"

// Reads names the options, by key, that the named estimator reads; the others change nothing. An option that matters only
// beside some values of others counts as read, but for those of bilevel that its two credits leave out.
func Reads(name string, o Options) []string {
	every := []string{"normalize_process"}
	compared := []string{
		"count_empty", "mask_rewards", "length_penalty.input_tokens", "length_penalty.output_tokens", "length_penalty.turns",
	}
	std := []string{"divide_by_std", "std_epsilon", "variance_floor"}
	whitened := []string{"whiten", "whiten_epsilon", "count_epsilon", "mask_advantages"}
	tokens := []string{"carry_masked", "gamma", "mask_returns"}
	steps := []string{"count_empty", "mask_rewards", "mask_advantages", "mask_returns", "step_gamma", "whiten", "whiten_epsilon"}
	own := map[string][][]string{
		"grpo":                   {compared, std, {"single"}},
		"dr_grpo":                {compared, {"single"}},
		"grpo_passk":             {compared, std},
		"rloo":                   {compared, {"single"}},
		"opo":                    {compared, {"single"}},
		"gpg":                    {compared, {"single", "gpg_norm"}},
		"max_rl":                 {compared},
		"rae":                    {compared, {"decay"}},
		"hierarchical_grpo":      {compared, {"single", "episode_agents"}},
		"reinforce_pp_baseline":  {compared, whitened, {"single"}},
		"gae":                    {tokens, whitened, {"lambda"}},
		"reinforce_pp":           {tokens, whitened, {"reset_at_mask"}},
		"remax":                  {{"mask_advantages", "mask_returns"}},
		"optimal_token_baseline": {{"by_position", "count_empty", "mask_returns", "single", "zero_tail"}},
		"prime_rloo":             {whitened, {"count_empty", "mask_returns", "mask_rewards", "outcome_weight", "process_weight", "single"}},
		"mt_grpo":                {std, whitened, {"count_empty", "mask_rewards", "single", "turn_weight"}},
		"gigpo":                  {compared, std, {"anchor", "single", "step_gamma", "step_weight"}},
		"gae_step":               {steps, {"step_lambda"}},
		"reinforce_step":         {steps},
		"bilevel":                {steps, {"step_credit", "token_credit"}},
	}
	parts := append(own[name], every)
	if name == "bilevel" && o.StepCredit == ByGAE {
		parts = append(parts, []string{"step_lambda"})
	}
	if name == "bilevel" && o.TokenCredit == ByGAE {
		parts = append(parts, tokens, []string{"count_epsilon", "lambda"})
	}
	read := slices.Concat(parts...)
	slices.Sort(read)
	return slices.Compact(read)
}
