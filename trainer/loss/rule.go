package loss

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/internal/check"
)

// rule is a parsed entry of Correction.Rules.
type rule struct {
	action, over, metric string
	lower, upper         float64
}

func parseRules(texts []string) ([]rule, error) {
	rules := []rule{}
	var errs []error
	for k, text := range texts {
		if text == WeightNone {
			continue
		}
		r, err := parseRule(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("rules: %d: %q: %w", k, text, err))
		}
		rules = append(rules, r)
	}
	return rules, errors.Join(errs...)
}

// RuleWords is how many words a rule of a correction has.
const RuleWords = 5

func parseRule(text string) (rule, error) {
	f := strings.Fields(text)
	if len(f) != RuleWords {
		return rule{}, errors.New(`want "ACTION OVER METRIC LOWER UPPER", as in "mask token ratio - 5"`)
	}
	r := rule{action: f[0], over: f[1], metric: f[2]}
	lower, lowerErr := parseBound(f[3], math.Inf(-1))
	upper, upperErr := parseBound(f[4], math.Inf(1))
	r.lower, r.upper = lower, upper
	var own error
	if lowerErr == nil && upperErr == nil && !r.isWithinBounds(r.boundedValue(0)) {
		own = fmt.Errorf("bounds %s to %s: must have %g between them, the %s of what the policy itself sampled, or all of it is rejected", f[3], f[4], r.boundedValue(0), f[2])
	}
	return r, errors.Join(
		check.OneOf("action", f[0], "mask", "zero", "clamp"),
		check.OneOf("over", f[1], "token", "sum", "mean", "max", "min"),
		check.OneOf("metric", f[2], "ratio", "k1", "-k1", "k2", "k3", "-k3"),
		lowerErr, upperErr, own,
	)
}

func parseBound(text string, none float64) (float64, error) {
	if text == "-" {
		return none, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) {
		return 0, fmt.Errorf("bound %q is not a number", text)
	}
	return v, nil
}

// metricOf returns the rule's metric of a log ratio; a ratio stays a logarithm.
func (r *rule) metricOf(d float64) float64 {
	switch r.metric {
	case "-k1":
		return -d
	case "k2":
		return d * d / 2
	case "k3":
		return math.Exp(-d) - 1 + d
	case "-k3":
		return math.Exp(d) - 1 - d
	default: // ratio, k1
		return d
	}
}

// boundedValue converts a value, aggregated or not, to the form of the bounds: a ratio. a ratio.
func (r *rule) boundedValue(v float64) float64 {
	if r.metric == "ratio" {
		return math.Exp(v)
	}
	return v
}

// isWithinBounds reports whether a final value is within bounds.
func (r *rule) isWithinBounds(v float64) bool { return v >= r.lower && v <= r.upper }

// aggregateRow returns the rule's final value over a row of length action tokens.
func (r *rule) aggregateRow(d []float64, mask []uint8, length float64) float64 {
	sum, largest, least := 0.0, math.Inf(-1), math.Inf(1)
	for t, m := range mask {
		if m != 0 {
			v := r.metricOf(d[t])
			sum, largest, least = sum+v, max(largest, v), min(least, v)
		}
	}
	switch r.over {
	case "mean":
		return r.boundedValue(sum / length)
	case "max":
		return r.boundedValue(largest)
	case "min":
		return r.boundedValue(least)
	default:
		return r.boundedValue(sum)
	}
}
