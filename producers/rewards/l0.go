package rewards

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Range is that of a reward.
type Range struct{ Min, Max float64 }

// at scales a number in [0, 1].
func (r Range) at(x float64) float64 { return r.Min + (r.Max-r.Min)*x }

// Unit is [0, 1].
func Unit() Range { return Range{0, 1} }

// StepAnswer scores the answers of an agent's steps, of which usually only the last has one (L0):
//
//	f1 F1 + em EM + hasAnswer
type StepAnswer struct {
	// F1, EM and HasAnswer are weights.
	F1        float64 `koanf:"f1"`
	EM        float64 `koanf:"em"`
	HasAnswer float64 `koanf:"has_answer"`
	Range     Range   `koanf:"-"`
}

// DefaultStepAnswer is 0.9 for an exact match and 0.1 for any answer.
func DefaultStepAnswer() StepAnswer { return StepAnswer{EM: 0.9, HasAnswer: 0.1, Range: Unit()} }

// Rewards has one entry a step; nil stands for a step without an answer. Without a gold answer each step gets the
// middle of the range. metrics are of the last step: f1_score, em_score, core_score and has_answer_score.
func (s StepAnswer) Rewards(gold string, answers []*string) (rewards []float64, metrics map[string]float64) {
	metrics = map[string]float64{"f1_score": 0, "em_score": 0, "core_score": 0, "has_answer_score": 0}
	golds := []string{gold}
	for _, answer := range answers {
		if gold == "" {
			rewards = append(rewards, (s.Range.Min+s.Range.Max)/2)
			continue
		}
		if answer == nil {
			rewards = append(rewards, s.Range.Min)
			continue
		}
		f := F1(Alphanumeric, *answer, golds, true)
		em := ExactMatch(Alphanumeric, *answer, golds)
		rewards = append(rewards, s.Range.at(s.F1*f+s.EM*em+s.HasAnswer))
	}
	if len(answers) == 0 || gold == "" {
		return rewards, metrics
	}
	if last := answers[len(answers)-1]; last != nil && *last != "" {
		em := ExactMatch(Alphanumeric, *last, golds)
		metrics["f1_score"] = F1(Alphanumeric, *last, golds, true)
		metrics["em_score"], metrics["core_score"], metrics["has_answer_score"] = em, em, 1
	}
	return rewards, metrics
}

// StepFormat is 1 for a step with exactly one thought of more than ten characters and one piece of code of more
// than five, else 0, divided by the number of steps so that more of them earn no more (L0).
func StepFormat(responses []string, r Range) []float64 {
	var out []float64
	n := float64(len(responses))
	for _, response := range responses {
		thoughts, code := Blocks(response, "think"), Blocks(response, "code")
		score := 0.0
		if len(thoughts) == 1 && len(code) == 1 && length(thoughts[0]) > 10 && length(code[0]) > 5 {
			score = 1
		}
		out = append(out, r.at(score)/n)
	}
	return out
}

// length counts characters without the white space around them.
func length(s string) int { return utf8.RuneCountInString(trim(s)) }

// CodeRun is what became of a step's code: how many outputs it had, and how many of them were errors.
type CodeRun struct{ Outputs, Errors int }

// StepCode is the share of a step's outputs that are no errors, 0 without outputs, divided by the number of steps
// (L0). nil stands for a step that ran no code; it gets the least reward.
func StepCode(runs []*CodeRun, r Range) []float64 {
	var out []float64
	for _, run := range runs {
		if run == nil {
			out = append(out, r.Min)
			continue
		}
		score := 0.0
		if run.Outputs > 0 {
			score = 1 - float64(run.Errors)/float64(run.Outputs)
		}
		out = append(out, r.at(score)/float64(len(runs)))
	}
	return out
}

// LengthTarget rewards responses near a length in words (L0).
type LengthTarget struct {
	// Words is the target; 0 or less gives every response the middle of the range.
	Words int `koanf:"words"`
	// Tolerance around the target costs nothing. Defaults to 0.2.
	Tolerance float64 `koanf:"tolerance"`
	// TooShort and TooLong are the most that a response can lose, as a share of the range. Default to 0.5.
	TooShort float64 `koanf:"too_short"`
	TooLong  float64 `koanf:"too_long"`
	// MissingIsMiddle gives an empty response the middle of the range, not its least.
	MissingIsMiddle bool  `koanf:"missing_is_middle"`
	Range           Range `koanf:"-"`
}

// DefaultLengthTarget aims at 50 words.
func DefaultLengthTarget() LengthTarget {
	return LengthTarget{Words: 50, Tolerance: 0.2, TooShort: 0.5, TooLong: 0.5, Range: Unit()}
}

// Validate reports every fault.
func (l LengthTarget) Validate() error {
	var faults []error
	if !finite(l.Tolerance) || l.Tolerance < 0 {
		faults = append(faults, fmt.Errorf("tolerance: %v: must not be negative", l.Tolerance))
	}
	for _, share := range []struct {
		key   string
		value float64
	}{{"too_short", l.TooShort}, {"too_long", l.TooLong}} {
		if !(share.value >= 0 && share.value <= 1) {
			faults = append(faults, fmt.Errorf("%s: %v: must be from 0 to 1", share.key, share.value))
		}
	}
	return errors.Join(faults...)
}

// Reward of one response.
func (l LengthTarget) Reward(response string) float64 {
	middle := (l.Range.Min + l.Range.Max) / 2
	n := float64(len(words(response)))
	if response == "" || n == 0 && !l.MissingIsMiddle {
		if l.MissingIsMiddle {
			return middle
		}
		return l.Range.Min
	}
	if l.Words <= 0 {
		return middle
	}
	low, high := float64(l.Words)*(1-l.Tolerance), float64(l.Words)*(1+l.Tolerance)
	span := l.Range.Max - l.Range.Min
	switch {
	case n < low:
		return max(l.Range.Min, l.Range.Max-span*l.TooShort*(1-n/low))
	case n > high:
		return max(l.Range.Min, l.Range.Max-span*l.TooLong*min(1, (n-high)/high))
	default:
		return l.Range.Max
	}
}
