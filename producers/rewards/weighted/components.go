package weighted

import (
	"strings"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

// The components of a reward beside producers.ComponentExactMatch and the published scorers.
const (
	ComponentAnswered       = "answered"
	ComponentSubstringMatch = "substring_match"
	ComponentF1             = "f1"
	ComponentFormat         = "format"
	ComponentCodeExecution  = "code_execution"
	ComponentLength         = "length"
	// ComponentCost is the sum of the costs of an episode's calls. It is subtracted, and has no weight.
	ComponentCost = "cost"
)

// component scores a single property of a finished episode.
type component func(t *producers.Transcript, golds []string) float64

// weighableComponents returns all components that the configuration can weigh, by name.
func (c Config) weighableComponents() map[string]component {
	normalize := rewards.Normalizers()[c.Normalizer]
	// An answer that normalises to nothing matches nothing.
	matched := func(score func(answer string, golds []string) float64) component {
		return func(t *producers.Transcript, golds []string) float64 {
			if !hasAnswer(t) || normalize(t.Answer) == "" {
				return 0
			}
			return score(t.Answer, golds)
		}
	}
	all := map[string]component{
		producers.ComponentExactMatch: matched(func(answer string, golds []string) float64 {
			return rewards.ExactMatch(normalize, answer, golds)
		}),
		ComponentSubstringMatch: matched(func(answer string, golds []string) float64 {
			return rewards.SubstringMatch(normalize, answer, golds)
		}),
		ComponentF1: matched(func(answer string, golds []string) float64 {
			return rewards.F1(normalize, answer, golds, false)
		}),
		ComponentAnswered: func(t *producers.Transcript, _ []string) float64 {
			if hasAnswer(t) {
				return 1
			}
			return 0
		},
		ComponentFormat:        func(t *producers.Transcript, _ []string) float64 { return formatShare(t) },
		ComponentCodeExecution: func(t *producers.Transcript, _ []string) float64 { return codeExecution(t) },
		ComponentLength: func(t *producers.Transcript, _ []string) float64 {
			return c.LengthTarget.Reward(strings.Join(sampledTexts(t), " "))
		},
	}
	for name, score := range rewards.Scorers() {
		all[name] = func(t *producers.Transcript, golds []string) float64 { return score(textWithMarks(t), golds) }
	}
	return all
}

// hasAnswer reports whether an episode has an answer: only an episode that stopped with an answer does.
func hasAnswer(t *producers.Transcript) bool { return t.Stop == schemas.StopAnswer && t.Answer != "" }

// formatShare returns the share of an episode's turns that called a tool or answered.
func formatShare(t *producers.Transcript) float64 {
	if len(t.Turns) == 0 {
		return 0
	}
	acted := 0
	for _, turn := range t.Turns {
		if turn.Tool != "" {
			acted++
		}
	}
	if hasAnswer(t) {
		acted++
	}
	return min(1, float64(acted)/float64(len(t.Turns)))
}

// codeExecution is the share of an episode's tool outputs that were no errors, 0 without any: a traceback of code that a tool ran is an
// error like a failure of the tool.
func codeExecution(t *producers.Transcript) float64 {
	var runs []*rewards.CodeRun
	for _, turn := range t.Turns {
		switch {
		case turn.Tool == "":
		case turn.Error != "":
			runs = append(runs, &rewards.CodeRun{Outputs: 1, Errors: 1})
		default:
			runs = append(runs, &rewards.CodeRun{Outputs: max(1, turn.Outputs, turn.Errors), Errors: turn.Errors})
		}
	}
	total := 0.0
	for _, r := range rewards.StepCode(runs, rewards.Unit()) {
		total += r
	}
	return total
}

// sumCosts adds up the costs of an episode's calls, by tool.
func sumCosts(costs map[string]float64, t *producers.Transcript) float64 {
	total := 0.0
	for _, turn := range t.Turns {
		for _, call := range turn.Calls {
			total += costs[call.Tool]
		}
	}
	return total
}

// sampledTexts returns the policy's text, turn by turn.
func sampledTexts(t *producers.Transcript) []string {
	texts := make([]string, len(t.Turns))
	for i, turn := range t.Turns {
		texts[i] = turn.Text
	}
	return texts
}
