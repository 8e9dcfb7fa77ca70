package rewards

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Sum is the weighted sum of a reward's components. A component without a weight counts for nothing; a weight without
// a component is an error, as it would be lost unseen.
func Sum(weights, components map[string]float64) (float64, error) {
	total := 0.0
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		v, ok := components[name]
		if !ok {
			return 0, fmt.Errorf("reward component %q: not computed (computed: %v)", name, slices.Sorted(maps.Keys(components)))
		}
		total += weights[name] * v
	}
	return total, nil
}

// L0Weights are L0's: the answer, the format and the code of each step.
func L0Weights() map[string]float64 {
	return map[string]float64{"qa": 0.8, "format": 0.1, "code_execution": 0.1}
}

// A Scorer gives a transcript its reward against the gold answers.
type Scorer func(transcript string, golds []string) float64

// Scorers by name, under the settings that their authors use.
func Scorers() map[string]Scorer {
	return map[string]Scorer{
		"search_r1":        SearchR1{AtLeast: 2, Score: 1}.Reward,
		"search_r1_subem":  SearchR1{AtLeast: 2, Score: 1, Substring: true}.Reward,
		"search_r1_format": DefaultSearchR1Format().Reward,
		"verl_search_r1":   SearchR1{AtLeast: 1, Score: 1, TagLimit: 10}.Reward,
		"agent_r1":         AgentR1{}.Reward,
		"exact_match":      func(t string, golds []string) float64 { return scoreAnswer(ExactMatch, t, golds) },
		"substring_match":  func(t string, golds []string) float64 { return scoreAnswer(SubstringMatch, t, golds) },
		"f1": func(t string, golds []string) float64 {
			answer, ok := LastAnswer(t, 1)
			if !ok {
				return 0
			}
			return F1(SQuAD, answer, golds, false)
		},
	}
}

func scoreAnswer(match func(Normalizer, string, []string) float64, transcript string, golds []string) float64 {
	answer, ok := LastAnswer(transcript, 1)
	if !ok {
		return 0
	}
	return match(SQuAD, answer, golds)
}

// ErrUnknownSource is returned when a Table has no scorer for a data source.
var ErrUnknownSource = errors.New("no reward for data source")

// Table chooses a scorer by data source.
type Table struct {
	// BySource names a scorer a source.
	BySource map[string]string `koanf:"by_source"`
	// Default is for every other source; "" makes an unknown source an error.
	Default string `koanf:"default"`
}

// Validate reports every name that is not a scorer's.
func (t Table) Validate() error {
	var errs []error
	check := func(key, name string) {
		if _, ok := Scorers()[name]; !ok {
			errs = append(errs, fmt.Errorf("%s: unknown %q (valid: %v)", key, name, slices.Sorted(maps.Keys(Scorers()))))
		}
	}
	for _, source := range slices.Sorted(maps.Keys(t.BySource)) {
		check("by_source."+source, t.BySource[source])
	}
	if t.Default != "" {
		check("default", t.Default)
	}
	return errors.Join(errs...)
}

// Reward scores a transcript of the source. It wraps ErrUnknownSource.
func (t Table) Reward(source, transcript string, golds []string) (float64, error) {
	name, ok := t.BySource[source]
	if !ok {
		name = t.Default
	}
	scorer, ok := Scorers()[name]
	if !ok {
		return 0, fmt.Errorf("score transcript: %w: %q", ErrUnknownSource, source)
	}
	return scorer(transcript, golds), nil
}
