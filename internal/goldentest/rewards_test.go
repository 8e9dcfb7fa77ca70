package goldentest

import (
	"github.com/weir-rl/weir/producers/rewards"
)

func rewardRunners() map[string]func(*golden) error {
	return map[string]func(*golden) error{
		"qa_pairs": qaPairs, "qa_solutions": qaSolutions, "qa_reward_l0": stepRewards,
	}
}

func qaPairs(c *golden) error {
	prediction, _ := c.Inputs["prediction"].(string)
	golds := texts(c.Inputs["golds"])
	if one, ok := c.Inputs["golds"].(string); ok {
		golds = []string{one}
	}
	normalized := []string{}
	for _, gold := range golds {
		normalized = append(normalized, rewards.SQuAD(gold))
	}
	c.want("sr1_normalized_prediction", rewards.SQuAD(prediction))
	c.want("sr1_normalized_golds", normalized)
	em := rewards.ExactMatch(rewards.SQuAD, prediction, golds)
	subem := rewards.SubstringMatch(rewards.SQuAD, prediction, golds)
	c.want("sr1_em", em)
	c.want("agentr1_em", em)
	c.want("sr1_subem", subem)
	c.want("agentr1_subem", subem)
	c.want("l0_eval_em", em == 1)
	c.want("l0_eval_f1", rewards.F1(rewards.SQuAD, prediction, golds, false))
	c.want("l0_reward_normalized", rewards.Alphanumeric(prediction))
	if len(golds) > 0 {
		c.want("l0_reward_em_first", rewards.ExactMatch(rewards.Alphanumeric, prediction, golds[:1]))
		c.want("l0_reward_f1_first", rewards.F1(rewards.Alphanumeric, prediction, golds[:1], true))
	}
	return nil
}

// wantText compares a text that may be absent.
func (c *golden) wantText(key, got string, ok bool) {
	if c.Expected[key] == nil && ok {
		c.problem(key, nil, got)
	}
	if !ok && c.Expected[key] != nil {
		c.problem(key, c.Expected[key], nil)
	}
	c.want(key, got)
}

func qaSolutions(c *golden) error {
	solution, _ := c.Inputs["solution"].(string)
	golds := texts(c.Inputs["golds"])
	sr1 := rewards.SearchR1{AtLeast: 2, Score: c.num("score", 1), FormatScore: c.num("format_score", 0)}
	answer, ok := rewards.LastAnswer(solution, 2)
	c.wantText("sr1_extract", answer, ok)
	c.want("sr1_em", sr1.Reward(solution, golds))
	sr1.Substring = true
	c.want("sr1_subem", sr1.Reward(solution, golds))

	verl := rewards.SearchR1{AtLeast: 1, Score: c.num("score", 1), FormatScore: c.num("format_score", 0), TagLimit: 10}
	answer, ok = rewards.LastAnswer(solution, 1)
	c.wantText("verl_extract", answer, ok)
	c.want("verl_em", verl.Reward(solution, golds))
	verl.Substring, verl.TagLimit = true, 0
	c.want("verl_subem", verl.Reward(solution, golds))

	valid, reason := rewards.ValidSequence(solution)
	c.want("sr1_format_valid", valid)
	c.want("sr1_format_reason", reason)
	c.want("sr1_format_em", rewards.DefaultSearchR1Format().Reward(solution, golds))

	var agent rewards.AgentR1
	answer, ok = rewards.FirstAnswer(solution)
	c.wantText("agentr1_extract", answer, ok)
	c.want("agentr1_format", agent.Format(solution))
	c.want("agentr1_answer", agent.Answer(solution, golds))
	c.want("agentr1_format_answer", agent.Reward(solution, golds))
	c.want("agentr1_em", agent.Accuracy(solution, golds))
	return nil
}

func stepRewards(c *golden) error {
	gold, _ := c.Inputs["ground_truth"].(string)
	weights := c.sub("qa")
	s := rewards.StepAnswer{
		F1: weights.num("f1_weight", 0.4), EM: weights.num("em_weight", 0.5), HasAnswer: weights.num("has_answer_weight", 0.1),
		Range: rewards.Unit(),
	}
	var answers []*string
	for _, v := range c.Inputs["final_answers"].([]any) {
		if answer, ok := v.(string); ok {
			answers = append(answers, &answer)
		} else {
			answers = append(answers, nil)
		}
	}
	qa, metrics := s.Rewards(gold, answers)
	c.want("qa_rewards", qa)
	c.wantIn("qa_metrics", metrics)

	responses := texts(c.Inputs["full_responses"])
	format := rewards.StepFormat(responses, rewards.Unit())
	c.want("format_rewards", format)
	c.want("traj_format_score", total(format))

	var runs []*rewards.CodeRun
	for _, v := range c.Inputs["code_results"].([]any) {
		outputs, ok := v.([]any)
		if !ok {
			runs = append(runs, nil)
			continue
		}
		run := &rewards.CodeRun{Outputs: len(outputs)}
		for _, output := range outputs {
			if output.(map[string]any)["output_type"] == "error" {
				run.Errors++
			}
		}
		runs = append(runs, run)
	}
	code := rewards.StepCode(runs, rewards.Unit())
	c.want("code_rewards", code)
	c.want("traj_code_execution_score", total(code))

	target := rewards.DefaultLengthTarget()
	target.Words = int(c.num("target_len_words", 50))
	var lengths []float64
	for _, response := range responses {
		lengths = append(lengths, target.Reward(response))
	}
	c.want("length_rewards", lengths)
	return nil
}

func total(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum
}
