package goldentest

import (
	"math"
	"strings"
	"unicode/utf8"

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
	// Agent-R1's accuracy is the part of its answer score that is full.
	c.want("agentr1_em", math.Floor(agent.Answer(solution, golds)))
	return nil
}

func stepRewards(c *golden) error {
	gold, _ := c.Inputs["ground_truth"].(string)
	weights := c.sub("qa")
	s := stepAnswer{f1: weights.num("f1_weight", 0.4), em: weights.num("em_weight", 0.5), hasAnswer: weights.num("has_answer_weight", 0.1)}
	var answers []*string
	for _, v := range c.Inputs["final_answers"].([]any) {
		if answer, ok := v.(string); ok {
			answers = append(answers, &answer)
		} else {
			answers = append(answers, nil)
		}
	}
	qa, metrics := s.rewards(gold, answers)
	c.want("qa_rewards", qa)
	c.wantIn("qa_metrics", metrics)

	responses := texts(c.Inputs["full_responses"])
	format := stepFormat(responses)
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

// stepAnswer scores the answers of an agent's steps, of which usually only the last has one (L0). A run of Weir scores
// whole trajectories: weighing the matches is this package's own code, the matches are those of a run's rewards.
//
//	f1 F1 + em EM + hasAnswer
type stepAnswer struct{ f1, em, hasAnswer float64 }

// rewards has one entry a step; nil stands for a step without an answer. Without a gold answer each step gets one half.
// metrics are of the last step.
func (s stepAnswer) rewards(gold string, answers []*string) (out []float64, metrics map[string]float64) {
	metrics = map[string]float64{"f1_score": 0, "em_score": 0, "core_score": 0, "has_answer_score": 0}
	golds := []string{gold}
	for _, answer := range answers {
		switch {
		case gold == "":
			out = append(out, 0.5)
		case answer == nil:
			out = append(out, 0)
		default:
			f1, em := rewards.F1(rewards.Alphanumeric, *answer, golds, true), rewards.ExactMatch(rewards.Alphanumeric, *answer, golds)
			out = append(out, s.f1*f1+s.em*em+s.hasAnswer)
		}
	}
	if len(answers) == 0 || gold == "" {
		return out, metrics
	}
	if last := answers[len(answers)-1]; last != nil && *last != "" {
		em := rewards.ExactMatch(rewards.Alphanumeric, *last, golds)
		metrics["f1_score"] = rewards.F1(rewards.Alphanumeric, *last, golds, true)
		metrics["em_score"], metrics["core_score"], metrics["has_answer_score"] = em, em, 1
	}
	return out, metrics
}

// stepFormat is 1 for a step with exactly one thought of more than ten characters and one piece of code of more than five,
// else 0, divided by the number of steps so that more of them earn no more (L0): this package's own code.
func stepFormat(responses []string) []float64 {
	var out []float64
	for _, response := range responses {
		thoughts, code := rewards.Blocks(response, "think"), rewards.Blocks(response, "code")
		score := 0.0
		if len(thoughts) == 1 && len(code) == 1 && length(thoughts[0]) > 10 && length(code[0]) > 5 {
			score = 1
		}
		out = append(out, score/float64(len(responses)))
	}
	return out
}

// length counts characters without the white space around them.
func length(s string) int { return utf8.RuneCountInString(strings.TrimSpace(s)) }
