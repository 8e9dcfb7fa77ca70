package rewards

import "github.com/weir-rl/weir/internal/check"

// Range is that of a reward.
type Range struct{ Min, Max float64 }

// scale scales a number in [0, 1] to the range.
func (r Range) scale(x float64) float64 { return r.Min + (r.Max-r.Min)*x }

// Unit is [0, 1].
func Unit() Range { return Range{0, 1} }

// CodeRun is the result of a step's code: how many outputs it had, and how many of them were errors.
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
		out = append(out, r.scale(score)/float64(len(runs)))
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
	return check.All(
		check.NotNegative("tolerance", l.Tolerance),
		check.Between("too_short", l.TooShort, 0, 1),
		check.Between("too_long", l.TooLong, 0, 1),
	)
}

// Reward of a response.
func (l LengthTarget) Reward(response string) float64 {
	middle := (l.Range.Min + l.Range.Max) / 2
	n := float64(len(splitWords(response)))
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
