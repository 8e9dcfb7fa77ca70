package atlas

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/facts"
)

// DemoConfig says how the demonstrations of the cold start are made. Their faults are deliberate: they leave something to learn from
// rewards.
type DemoConfig struct {
	// Seed makes other demonstrations of the same kind.
	Seed uint64 `koanf:"seed"`
	// Composed is the share of demonstrations, 0 to 1, that answer in a single cell; the others look up a country in each cell.
	Composed float64 `koanf:"composed"`
	// Forget is the share of neighbours, 0 to 1, that are forgotten: the country itself stands in their place.
	Forget float64 `koanf:"forget"`
}

// DefaultDemoConfig composes in a fifth of the cases.
func DefaultDemoConfig() DemoConfig { return DemoConfig{Seed: 1, Composed: 0.2, Forget: 0.2} }

// Validate reports every fault.
func (c DemoConfig) Validate() error {
	return check.All(check.Between("composed", c.Composed, 0, 1), check.Between("forget", c.Forget, 0, 1))
}

// script is the demonstrations before an agent has written them: the i-th is always the same. Each has a world of its own, whose names are
// words drawn at random in the form of real ones, so that none can be remembered and only reading and copying helps.
type script struct {
	cfg   DemoConfig
	forms []string // real names
	words []string
}

func newScript(cfg DemoConfig, countries []*facts.Country) script {
	s := script{cfg: cfg}
	for _, c := range countries {
		s.forms = append(s.forms, c.Name)
		for _, name := range []string{c.Name, c.Capital} {
			s.words = append(s.words, strings.Fields(facts.Key(name))...)
		}
	}
	slices.Sort(s.words)
	s.words = slices.Compact(s.words)
	return s
}

// drawName draws a made-up name that is not taken, with as many words as a real name and the same marks between them.
func (s script) drawName(rng *rand.Rand, taken []string) string {
	for {
		form := s.forms[rng.IntN(len(s.forms))]
		for word := range strings.FieldsSeq(facts.Key(form)) {
			form = strings.Replace(form, word, strings.ToUpper(s.words[rng.IntN(len(s.words))]), 1) // in capitals, so that none is replaced twice
		}
		name := strings.ToLower(form)
		if !slices.ContainsFunc(taken, func(t string) bool { return facts.Key(t) == facts.Key(name) }) {
			return name
		}
	}
}

// worldAt returns the i-th demonstration, its question and its world.
func (s script) worldAt(i uint64) (tasks.Demonstration, question, places) {
	rng := rand.New(rand.NewPCG(s.cfg.Seed, i))
	var names []string
	for range 4 { // two countries, and the neighbour of each
		names = append(names, s.drawName(rng, names))
	}
	atlas := places{}
	for k, name := range names {
		atlas[facts.Key(name)] = place{name, s.drawName(rng, names), 1 + rng.Int64N(999), names[(k+2)%4]}
	}
	q := drawQuestion(rng, Sources()[rng.IntN(len(Sources()))], names[:2], names[:2])
	done := slices.Clone(q)
	for k := range done {
		if done[k].beside && rng.Float64() < s.cfg.Forget {
			done[k].beside = false
		}
	}
	d := tasks.Demonstration{Question: q.questionText()}
	if rng.Float64() < s.cfg.Composed {
		d.Steps = []tasks.Step{{Arguments: submitCall(done.answerCode())}}
	} else {
		d.Steps = done.separateSteps(atlas)
	}
	return d, q, atlas
}

// variables keep the values of a question's terms.
var variables = [...]string{"a", "b"}

// separateSteps returns the answer with a look-up in each cell, and the output of each cell.
func (q question) separateSteps(atlas places) []tasks.Step {
	var steps []tasks.Step
	for k, t := range q {
		if t.beside {
			next := atlas.findPlace(t.country).neighbour
			steps = append(steps, tasks.Step{Arguments: lookUpCode(t.country, neighbourField), Result: fmt.Sprintf("%q", next)})
			t.country = next
		}
		steps = append(steps, tasks.Step{Arguments: variables[k] + " = " + lookUpCode(t.country, t.field)})
	}
	return append(steps, tasks.Step{Arguments: submitCall(strings.Join(variables[:len(q)], " * "))})
}

// demonstrationAt returns the i-th demonstration alone.
func (s script) demonstrationAt(i uint64) tasks.Demonstration {
	d, _, _ := s.worldAt(i)
	return d
}

// submitCall returns the cell that submits the value of an expression.
func submitCall(code string) string { return fmt.Sprintf("submit ( %s )", code) }
