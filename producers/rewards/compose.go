package rewards

import (
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
	}
}
