package library

import (
	"math/rand/v2"
	"slices"
	"strings"
	"unicode"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/facts"
)

// Demonstrations are scripted trajectories in made-up worlds, numbered from 0 without end. Each is right in its world.
// Names are random words of the vocabulary and every demonstration has its own facts, kept in books of its own world's
// choice, so none can be remembered and only reading and copying helps. Safe for concurrent use.
type Demonstrations struct {
	cfg     DemoConfig
	tok     tasks.Tokenizer
	words   []string // the parts of made-up names
	lengths []int    // words of each real name: made-up ones are as long
	usual   [len(realShelf)][]string
}

func newDemonstrations(cfg DemoConfig, tok tasks.Tokenizer, places []*place) *Demonstrations {
	d := &Demonstrations{cfg: cfg, tok: tok}
	for fact := range d.usual {
		d.usual[fact] = usualBooks(fact, cfg.UsualBooks)
	}
	fixed := tokenizer.LowerWords(wording)
	for _, p := range places {
		for _, name := range slices.Concat([]string{p.name}, p.values[:], p.regions) {
			n := 0
			for _, word := range tokenizer.LowerWords(name) {
				if r := rune(word[0]); (unicode.IsLetter(r) || unicode.IsDigit(r)) && !slices.Contains(fixed, word) {
					d.words = append(d.words, word)
					n++
				}
			}
			if n > 0 {
				d.lengths = append(d.lengths, n)
			}
		}
	}
	slices.Sort(d.words)
	d.words = slices.Compact(d.words)
	return d
}

// Demonstration returns the tokens of the i-th demonstration and a mask with 1 where the demonstrator, not the prompt or the tool, wrote
// the token. It depends on the configuration and i alone.
func (d *Demonstrations) Demonstration(i uint64) (tokens []int32, mask []uint8) {
	places, in, q := d.drawWorld(i)
	found := map[string]string{}
	for _, p := range newPassages(places, in) {
		found[p.Title] = p.Text
	}
	write := func(acts uint8, text string) {
		from := len(tokens)
		tokens = append(tokens, d.tok.Encode(text)...)
		for range tokens[from:] {
			mask = append(mask, acts)
		}
	}
	write(0, contextText(tasks.TokenBegin, q.text))
	for _, search := range q.searches {
		write(1, contextText(tasks.TokenSearch, search, tasks.TokenSearchEnd))
		write(0, contextText(tasks.TokenInfo, found[search], tasks.TokenInfoEnd))
	}
	write(1, contextText(tasks.TokenAnswer, q.answer, tasks.TokenAnswerEnd))
	return tokens, mask
}

// contextText returns text as an agent's context has it.
func contextText(parts ...string) string { return strings.Join(parts, " ") }

// drawWorld makes up the i-th world, its books, and a question about it.
func (d *Demonstrations) drawWorld(i uint64) ([]*place, shelf, question) {
	rng := rand.New(rand.NewPCG(d.cfg.Seed, i))
	searches := 1
	if i >= d.cfg.OneHopFirst {
		searches += rng.IntN(len(Kinds()))
	}
	var in shelf
	for fact := range in {
		in[fact] = drawOne(rng, d.usual[fact])
	}
	for {
		places := d.drawPlaces(rng)
		for range 8 { // a world may have no question of the kind
			if q, ok := drawQuestion(rng, searches, places, in); ok {
				return places, in, q
			}
		}
	}
}

// madeUp is how many places a world has.
const madeUp = 5

// drawPlaces draws the places of a world.
func (d *Demonstrations) drawPlaces(rng *rand.Rand) []*place {
	places := make([]*place, madeUp)
	taken := map[string]bool{} // by facts.Key: a search must find a single entry
	for i := range places {
		p := &place{name: d.newName(rng, taken), regions: []string{d.newName(rng, taken)}}
		for f := range p.values {
			p.values[f] = d.drawName(rng)
		}
		places[i] = p
	}
	for i, p := range places {
		for n := range p.next {
			if rng.IntN(5) < 2 {
				p.next[n] = places[(i+1+rng.IntN(madeUp-1))%madeUp]
			}
		}
	}
	return places
}

// newName draws a name that is not taken, and takes it.
func (d *Demonstrations) newName(rng *rand.Rand, taken map[string]bool) string {
	for {
		if name := d.drawName(rng); !taken[facts.Key(name)] {
			taken[facts.Key(name)] = true
			return name
		}
	}
}

// drawName draws a made-up name, as long as a real name.
func (d *Demonstrations) drawName(rng *rand.Rand) string {
	var name strings.Builder
	name.WriteString(drawOne(rng, d.words))
	for range drawOne(rng, d.lengths) - 1 {
		mark := " "
		switch n := rng.IntN(20); {
		case n < 3:
			mark = "-"
		case n < 4:
			mark = "'"
		}
		name.WriteString(mark + drawOne(rng, d.words))
	}
	return name.String()
}
