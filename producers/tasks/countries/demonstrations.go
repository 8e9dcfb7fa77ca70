package countries

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/tasks"
)

// DemoConfig says how the demonstrations of the cold start are made. The noise is deliberate: a policy that
// copies an imperfect demonstrator can use the tool but has something left to learn from rewards.
type DemoConfig struct {
	// Seed makes other demonstrations of the same kind.
	Seed uint64 `koanf:"seed"`
	// The first OneHopFirst demonstrations are one-hop: copying a name is learned there. From then on the four kinds are equally frequent.
	OneHopFirst uint64 `koanf:"one_hop_first"`
	// NoiseFrom is the demonstration from which the two rates below hold; before it they are 0.
	NoiseFrom uint64 `koanf:"noise_from"`
	// StopEarly is the share of multi-hop demonstrations, 0 to 1, that answer from the result of an earlier hop: the field of the wrong
	// country, or the country itself.
	StopEarly float64 `koanf:"stop_early"`
	// WrongField is the share of one-hop demonstrations, 0 to 1, that answer with another field.
	WrongField float64 `koanf:"wrong_field"`
	// NoNeighbour is the share of passages, 0 to 1, in which a country whose neighbour is not asked for has none.
	NoNeighbour float64 `koanf:"no_neighbour"`
	// Tools are the tools that look-ups are demonstrated with, each as often as any other, between the tags of their names. None is the
	// agent's only tool, search. Defaults to none.
	Tools []string `koanf:"tools"`
	// Missed is the share of the look-ups with the first of several Tools, 0 to 1, that find a passage about something else: the last of
	// Tools is asked then. Defaults to 0.
	Missed float64 `koanf:"missed"`
}

// DefaultDemoConfig is the noise that a prototype ended with: see the fields.
func DefaultDemoConfig() DemoConfig {
	return DemoConfig{Seed: 1, OneHopFirst: 6400, StopEarly: 0.65, WrongField: 0.30, NoNeighbour: 0.25}
}

// Validate reports every fault.
func (c DemoConfig) Validate() error {
	return check.All(
		check.Between("stop_early", c.StopEarly, 0, 1),
		check.Between("wrong_field", c.WrongField, 0, 1),
		check.Between("no_neighbour", c.NoNeighbour, 0, 1),
		check.Between("missed", c.Missed, 0, 1),
		check.That(c.Missed == 0 || len(c.Tools) > 1, "missed",
			"%g: with a single tool nothing else can be asked: name several in tools", c.Missed),
	)
}

// Demonstrations are scripted trajectories in made-up worlds, numbered from 0 without end. Names are random
// words of the vocabulary and every demonstration has its own facts, so none can be remembered and only
// reading and copying helps. Safe for concurrent use.
type Demonstrations struct {
	cfg     DemoConfig
	tok     tasks.Tokenizer
	words   []int32 // the parts of made-up names
	lengths []int   // tokens of each real name: made-up ones are as long

	// tools are the tags of the tools that look-ups are demonstrated with.
	tools []tag

	begin, info, infoEnd, answer, answerEnd             int32
	what, is, the, of, has, comma, stop, ask, a, region int32
	country, neighbour                                  int32
	fields                                              [len(fields)]int32
}

// tag is a tag's two tokens.
type tag struct{ open, close int32 }

func newDemonstrations(cfg DemoConfig, tok tasks.Tokenizer, names []string) (*Demonstrations, error) {
	d := &Demonstrations{cfg: cfg, tok: tok}
	var missing []string
	id := func(token string) int32 {
		id, ok := tok.ID(token)
		if !ok {
			missing = append(missing, token)
		}
		return id
	}
	d.begin = id(tasks.TokenBegin)
	d.tools = []tag{{id(tasks.TokenSearch), id(tasks.TokenSearchEnd)}}
	if len(cfg.Tools) > 0 {
		d.tools = nil
	}
	for _, name := range cfg.Tools {
		d.tools = append(d.tools, tag{id("<" + name + ">"), id("</" + name + ">")})
	}
	d.info, d.infoEnd, d.answer, d.answerEnd = id(tasks.TokenInfo), id(tasks.TokenInfoEnd), id(tasks.TokenAnswer), id(tasks.TokenAnswerEnd)
	d.what, d.is, d.the, d.of, d.has = id("what"), id("is"), id("the"), id("of"), id("has")
	d.comma, d.stop, d.ask, d.a, d.region = id(","), id("."), id("?"), id("a"), id("region")
	d.country, d.neighbour = id("country"), id("neighbour")
	for i, field := range fields {
		d.fields[i] = id(field)
	}
	fixed := []int32{d.what, d.is, d.the, d.of, d.has, d.comma, d.stop, d.ask, d.a, d.region, d.country, d.neighbour}
	fixed = append(fixed, d.fields[:]...)
	for _, name := range names {
		ids := tok.Encode(name)
		d.lengths = append(d.lengths, len(ids))
		for _, id := range ids {
			if !slices.Contains(fixed, id) {
				d.words = append(d.words, id)
			}
		}
	}
	slices.Sort(d.words)
	d.words = slices.Compact(d.words)
	if len(missing) > 0 {
		return nil, fmt.Errorf("demonstrations: the tokenizer has no single token for %q: want one of whole words", missing[0])
	}
	return d, nil
}

// kinds in the order in which a demonstration draws them.
var kinds = [...]string{KindOneHop, KindNeighbour, KindRegion, KindRegionThenBy}

// place is a made-up country.
type place struct {
	name      []int32
	values    [len(fields)][]int32
	neighbour []int32 // nil if it has none
}

// Demonstration returns the tokens of the i-th demonstration and a mask with 1 where the demonstrator, not the prompt or the tool, wrote
// the token. It depends on the configuration and i alone.
func (d *Demonstrations) Demonstration(i uint64) (tokens []int32, mask []uint8) {
	rng := rand.New(rand.NewPCG(d.cfg.Seed, i))
	kind := kinds[0]
	if i >= d.cfg.OneHopFirst {
		kind = kinds[rng.IntN(len(kinds))]
	}
	script := script{d: d, tokens: make([]int32, 0, 96), mask: make([]uint8, 0, 96)}
	field := rng.IntN(len(fields))
	early := i >= d.cfg.NoiseFrom && rng.Float64() < d.cfg.StopEarly
	wrong := i >= d.cfg.NoiseFrom && rng.Float64() < d.cfg.WrongField

	// The names along the way: a region, its country, that country's neighbour.
	region, first, second := d.drawName(rng), d.drawPlace(rng), d.drawPlace(rng)
	viaRegion := kind == KindRegion || kind == KindRegionThenBy
	viaNeighbour := kind == KindNeighbour || kind == KindRegionThenBy
	if viaNeighbour {
		first.neighbour = second.name
	}

	script.addGiven(d.begin, d.what, d.is, d.the, d.fields[field], d.of)
	if viaNeighbour {
		script.addGiven(d.the, d.neighbour, d.of)
	}
	if viaRegion {
		script.addGiven(d.the, d.country, d.of)
		script.addGiven(region...)
	} else {
		script.addGiven(first.name...)
	}
	script.addGiven(d.ask)

	if viaRegion {
		script.addLookUp(rng, region, func() { script.addRegion(region, first.name) })
		if early && (!viaNeighbour || rng.IntN(2) == 0) {
			return script.finishWith(first.name)
		}
	}
	script.addLookUp(rng, first.name, func() { script.addPassage(first) })
	if viaNeighbour {
		if early {
			return script.finishWith(first.values[field])
		}
		script.addLookUp(rng, second.name, func() { script.addPassage(second) })
		return script.finishWith(second.values[field])
	}
	if kind == KindOneHop && wrong {
		field = (field + 1 + rng.IntN(len(fields)-1)) % len(fields)
	}
	return script.finishWith(first.values[field])
}

// drawName draws a made-up name, as long as a real name.
func (d *Demonstrations) drawName(rng *rand.Rand) []int32 {
	name := make([]int32, d.lengths[rng.IntN(len(d.lengths))])
	for i := range name {
		name[i] = d.words[rng.IntN(len(d.words))]
	}
	return name
}

// drawPlace draws a made-up country.
func (d *Demonstrations) drawPlace(rng *rand.Rand) place {
	p := place{name: d.drawName(rng)}
	for i := range p.values {
		p.values[i] = d.drawName(rng)
	}
	if rng.Float64() >= d.cfg.NoNeighbour {
		p.neighbour = d.drawName(rng)
	}
	return p
}

// script writes one demonstration.
type script struct {
	d      *Demonstrations
	tokens []int32
	mask   []uint8
}

// addGiven writes the text of the prompt or the tool.
func (s *script) addGiven(tokens ...int32) {
	s.tokens = append(s.tokens, tokens...)
	for range tokens {
		s.mask = append(s.mask, 0)
	}
}

// addSampled writes the text of the demonstrator.
func (s *script) addSampled(tokens ...int32) {
	s.tokens = append(s.tokens, tokens...)
	for range tokens {
		s.mask = append(s.mask, 1)
	}
}

// addLookUp writes a search and its passage: with a tool that is drawn where there are several, and with the last where the first misses.
func (s *script) addLookUp(rng *rand.Rand, name []int32, passage func()) {
	tool := 0
	if len(s.d.tools) > 1 {
		tool = rng.IntN(len(s.d.tools))
		if tool == 0 && rng.Float64() < s.d.cfg.Missed {
			s.addCall(s.d.tools[0], name, func() { s.addOther(rng) })
			tool = len(s.d.tools) - 1
		}
	}
	s.addCall(s.d.tools[tool], name, passage)
}

// addCall writes a call of a tool and its passage.
func (s *script) addCall(tool tag, name []int32, passage func()) {
	s.addSampled(tool.open)
	s.addSampled(name...)
	s.addSampled(tool.close)
	s.addGiven(s.d.info)
	passage()
	s.addGiven(s.d.infoEnd)
}

// addOther writes a passage about something else than was asked for.
func (s *script) addOther(rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		s.addPassage(s.d.drawPlace(rng))
		return
	}
	s.addRegion(s.d.drawName(rng), s.d.drawName(rng))
}

// addRegion writes the passage about a region.
func (s *script) addRegion(region, country []int32) {
	s.addGiven(region...)
	s.addGiven(s.d.is, s.d.a, s.d.region, s.d.of)
	s.addGiven(country...)
	s.addGiven(s.d.stop)
}

// addPassage writes the passage about a place.
func (s *script) addPassage(p place) {
	s.addGiven(p.name...)
	s.addGiven(s.d.has)
	for i, value := range p.values {
		if i > 0 {
			s.addGiven(s.d.comma)
		}
		s.addGiven(s.d.fields[i])
		s.addGiven(value...)
	}
	if p.neighbour != nil {
		s.addGiven(s.d.comma, s.d.neighbour)
		s.addGiven(p.neighbour...)
	}
	s.addGiven(s.d.stop)
}

// finishWith writes the answer and returns the demonstration.
func (s *script) finishWith(value []int32) ([]int32, []uint8) {
	s.addSampled(s.d.answer)
	s.addSampled(value...)
	s.addSampled(s.d.answerEnd)
	return s.tokens, s.mask
}
