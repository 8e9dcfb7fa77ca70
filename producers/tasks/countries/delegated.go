package countries

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weir-rl/weir/producers/agents/team"
	"github.com/weir-rl/weir/producers/tasks"
)

// Rewrite writes the demonstrations for a team. Up to DemoConfig.OneHopFirst they are workers', of questions that a single search answers;
// from then on every other demonstration is a planner's, which has such questions answered and stops early where DemoConfig.StopEarly says
// so.
func (d *Demonstrations) Rewrite(by tasks.Demonstrator) (tasks.Demonstrations, error) {
	if _, ok := by.(*team.Agent); !ok {
		return nil, errors.New("they are of another agent than the task's, which writes its own: name a file of demonstrations in a task of " +
			"type jsonl or corpus")
	}
	out := &delegated{Demonstrations: d, by: by}
	for _, i := range []uint64{0, d.cfg.OneHopFirst, d.cfg.OneHopFirst + 1} { // a worker's, and a demonstration of each
		if _, _, err := by.Demonstrate(out.demonstrationAt(i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// delegated are the demonstrations of a team.
type delegated struct {
	*Demonstrations
	by tasks.Demonstrator
}

// Demonstration is as that of Demonstrations.
func (d *delegated) Demonstration(i uint64) (tokens []int32, mask []uint8) {
	tokens, mask, err := d.by.Demonstrate(d.demonstrationAt(i))
	if err != nil {
		panic(fmt.Sprintf("demonstration %d: %v", i, err)) // Rewrite has tried them
	}
	return tokens, mask
}

// demonstrationAt returns the i-th demonstration, before an agent writes it in its own form.
func (d *delegated) demonstrationAt(i uint64) tasks.Demonstration {
	rng := rand.New(rand.NewPCG(d.cfg.Seed, i))
	if i < d.cfg.OneHopFirst || i%2 == 0 {
		return d.workerDemonstration(i, rng)
	}
	return d.plannerDemonstration(i, rng)
}

// workerDemonstration returns a worker's demonstration: a look-up.
func (d *delegated) workerDemonstration(i uint64, rng *rand.Rand) tasks.Demonstration {
	const ofNeighbour, ofRegion = len(fields), len(fields) + 1
	p, asked := d.drawPlace(rng), rng.IntN(len(fields)+2)
	name := d.nameText(p.name)
	out := tasks.Demonstration{Role: team.WorkerRole}
	switch asked {
	case ofRegion:
		country := d.nameText(d.drawName(rng))
		out.Question, out.Answer = fmt.Sprintf(questionTemplate, "country", name), country
		out.Steps = []tasks.Step{{Arguments: name, Result: fmt.Sprintf("%s is a region of %s .", name, country)}}
		return out
	case ofNeighbour:
		p.neighbour = d.drawName(rng)
		out.Question, out.Answer = fmt.Sprintf(questionTemplate, "neighbour", name), d.nameText(p.neighbour)
	default:
		out.Question = fmt.Sprintf(questionTemplate, fields[asked], name)
		if i >= d.cfg.NoiseFrom && rng.Float64() < d.cfg.WrongField {
			asked = (asked + 1 + rng.IntN(len(fields)-1)) % len(fields)
		}
		out.Answer = d.nameText(p.values[asked])
	}
	passage := script{d: d.Demonstrations}
	passage.addPassage(p)
	out.Steps = []tasks.Step{{Arguments: name, Result: d.nameText(passage.tokens)}}
	return out
}

// plannerDemonstration returns a planner's demonstration: a delegation for each look-up.
func (d *delegated) plannerDemonstration(i uint64, rng *rand.Rand) tasks.Demonstration {
	kind := kinds[rng.IntN(len(kinds))]
	field, early := fields[rng.IntN(len(fields))], i >= d.cfg.NoiseFrom && rng.Float64() < d.cfg.StopEarly
	viaRegion, viaNeighbour := kind == KindRegion || kind == KindRegionThenBy, kind == KindNeighbour || kind == KindRegionThenBy
	name := func() string { return d.nameText(d.drawName(rng)) }
	at, whole := name(), ""
	out := tasks.Demonstration{}
	ask := func(what string) {
		answer := name()
		out.Steps = append(out.Steps, tasks.Step{Arguments: fmt.Sprintf(questionTemplate, what, at), Result: answer})
		at = answer
	}
	if whole = at; viaRegion {
		whole = "the country of " + whole
	}
	if viaNeighbour {
		whole = "the neighbour of " + whole
	}
	out.Question = fmt.Sprintf(questionTemplate, field, whole)
	if viaRegion {
		if ask("country"); early && (!viaNeighbour || rng.IntN(2) == 0) {
			out.Answer = at
			return out
		}
	}
	if viaNeighbour && !early {
		ask("neighbour")
	}
	ask(field)
	out.Answer = at
	return out
}

// nameText returns a name as a text.
func (d *delegated) nameText(ids []int32) string { return d.tok.Decode(slices.Clone(ids)) }
