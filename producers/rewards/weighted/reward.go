package weighted

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

// Config sets the reward of an episode: the sum of its components, each by its weight, then shaped. All components but the components of
// published work are from 0 to 1. A weight of 0 does not compute its component.
type Config struct {
	// ExactMatch weighs 1 for an accepted answer, else 0.
	ExactMatch float64 `koanf:"exact_match"`
	// SubstringMatch weighs 1 for an answer that holds an accepted answer, else 0; F1 the share of words that it has in common with the
	// nearest of them. Both default to 0.
	SubstringMatch float64 `koanf:"substring_match"`
	F1             float64 `koanf:"f1"`
	// Answered weighs 1 for any answer in the right format, else 0.
	Answered float64 `koanf:"answered"`
	// Format weighs the share of the turns that called a tool or answered. Defaults to 0.
	Format float64 `koanf:"format"`
	// CodeExecution weighs the share of the tool calls that did not fail, 0 without any. Defaults to 0.
	CodeExecution float64 `koanf:"code_execution"`
	// Length weighs how near the number of words that the policy wrote is to LengthTarget. Defaults to 0.
	Length float64 `koanf:"length"`
	// Published weighs the rewards of published work, by name. They read the tags and chat marks of the whole context:
	// agent_r1, search_r1, search_r1_format, search_r1_subem and verl_search_r1.
	Published map[string]float64 `koanf:"published"`

	// Costs are what a call of each tool takes from the reward, 0 or more, by the tool's name, for every source: `{search: 0.02, shell: 0.1}`.
	// A call that failed costs as much. Their sum over the episode is the component cost, before Shape.
	Costs map[string]float64 `koanf:"costs"`

	// BySource gives the questions of a source weights of their own, by component, in the place of all the weights above: `{"2n":
	// {exact_match: 1}, "3": {f1: 1, answered: 0.1}}`. Every component and published reward can be named.
	BySource map[string]map[string]float64 `koanf:"by_source"`

	// Normalizer brings spellings together before they are compared: words, squad or alphanumeric. Defaults to
	// "words".
	Normalizer string `koanf:"normalizer"`
	// LengthTarget is for Length.
	LengthTarget rewards.LengthTarget `koanf:"length_target"`
	// Shape is applied to the sum.
	Shape rewards.Shape `koanf:"shape"`
}

// DefaultConfig is 1 for the right answer and 0.1 for any.
func DefaultConfig() Config {
	return Config{
		ExactMatch: 1, Answered: 0.1, Normalizer: "words",
		LengthTarget: rewards.DefaultLengthTarget(), Shape: rewards.DefaultShape(),
	}
}

// Validate reports every fault.
func (c Config) Validate() error {
	known := c.weighableComponents()
	var faults []error
	of := func(section string, weights map[string]float64, known map[string]component) {
		for _, name := range slices.Sorted(maps.Keys(weights)) {
			fault := check.Finite(name, weights[name])
			if known[name] == nil {
				fault = check.That(false, name, "unknown component: want one of %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
			}
			faults = append(faults, check.Section(section, fault))
		}
	}
	of("", c.ownWeights(), known)
	published := maps.Clone(known)
	maps.DeleteFunc(published, func(name string, _ component) bool { return rewards.Scorers()[name] == nil })
	of("published", c.Published, published)
	for _, source := range slices.Sorted(maps.Keys(c.BySource)) {
		of("by_source."+source, c.BySource[source], known)
	}
	for _, tool := range slices.Sorted(maps.Keys(c.Costs)) {
		faults = append(faults, check.Section("costs", check.NotNegative(tool, c.Costs[tool])))
	}
	return check.All(
		check.All(faults...),
		check.OneOf("normalizer", c.Normalizer, slices.Sorted(maps.Keys(rewards.Normalizers()))...),
		check.Section("length_target", c.LengthTarget.Validate()),
		check.Section("shape", c.Shape.Validate()),
	)
}

// ownWeights returns the weights that have keys of their own.
func (c Config) ownWeights() map[string]float64 {
	return map[string]float64{
		producers.ComponentExactMatch: c.ExactMatch, ComponentSubstringMatch: c.SubstringMatch, ComponentF1: c.F1,
		ComponentAnswered: c.Answered, ComponentFormat: c.Format, ComponentCodeExecution: c.CodeExecution, ComponentLength: c.Length,
	}
}

// Reward scores episodes.
type Reward struct {
	components map[string]component
	// weights are for questions of a source that bySource does not name.
	weights  map[string]float64
	bySource map[string]map[string]float64
	costs    map[string]float64
	shape    rewards.Shape
	// normalize brings spellings together.
	normalize rewards.Normalizer
}

// New makes the reward.
func New(cfg Config) (*Reward, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("reward: %w", err)
	}
	weights := cfg.ownWeights()
	maps.Copy(weights, cfg.Published)
	r := &Reward{components: cfg.weighableComponents(), weights: computedWeights(weights), bySource: map[string]map[string]float64{}, costs: cfg.Costs, shape: cfg.Shape, normalize: rewards.Normalizers()[cfg.Normalizer]}
	for source, weights := range cfg.BySource {
		r.bySource[source] = computedWeights(weights)
	}
	return r, nil
}

// computedWeights leaves out the components without a weight, but for the components that people compare runs by.
func computedWeights(weights map[string]float64) map[string]float64 {
	out := map[string]float64{producers.ComponentExactMatch: 0, ComponentAnswered: 0}
	for name, weight := range weights {
		if weight != 0 {
			out[name] = weight
		}
	}
	return out
}

// ReadsOfEpisode says whether it counts the outputs of code, which a stored trajectory lacks.
func (r *Reward) ReadsOfEpisode() string {
	for _, weights := range append(slices.Collect(maps.Values(r.bySource)), r.weights) {
		if weights[ComponentCodeExecution] != 0 {
			return "how many outputs of the episode's code were errors (" + ComponentCodeExecution + ")"
		}
	}
	return ""
}

// Score compares the episode with the ticket's answers, by the weights of its question's source, and subtracts what its calls cost.
func (r *Reward) Score(_ context.Context, ticket *schemas.Ticket, transcript *producers.Transcript) (producers.Score, error) {
	weights, ok := r.bySource[ticket.Prompt.Source]
	if !ok {
		weights = r.weights
	}
	components := make(map[string]float64, len(weights))
	for name := range weights {
		components[name] = r.components[name](transcript, ticket.Prompt.Answers)
	}
	total, err := rewards.Sum(weights, components)
	if len(r.costs) > 0 {
		components[ComponentCost] = sumCosts(r.costs, transcript)
		total -= components[ComponentCost]
	}
	return producers.Score{Total: r.shape.Apply(total), Components: components}, err
}

// Ballot is the answer, normalised.
func (r *Reward) Ballot(answer string) string { return r.normalize(answer) }

// Same is false: equal spellings are normalised before.
func (r *Reward) Same(_, _ string) bool { return false }
