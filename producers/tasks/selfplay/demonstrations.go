package selfplay

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/countries"
)

// DemoConfig says how the parts of a game are demonstrated: of four demonstrations the first is a proposer's, the second a verifier's, and
// two are solvers', which are the demonstrations of the task countries. All take place in made-up worlds.
type DemoConfig struct {
	// Solver says how the solvers' are made.
	Solver countries.DemoConfig `koanf:"solver"`
	// Nearest is the share of the proposers' questions, 0 to 1, that a single search answers; the others lead through more of the document.
	// Defaults to 0.5.
	Nearest float64 `koanf:"nearest"`
	// Careless is the share of the proposers' questions, 0 to 1, whose answer differs from the given answer. Defaults to 0.2.
	Careless float64 `koanf:"careless"`
}

// DefaultDemoConfig leaves something to learn for every part.
func DefaultDemoConfig() DemoConfig {
	return DemoConfig{Solver: countries.DefaultDemoConfig(), Nearest: 0.5, Careless: 0.2}
}

// Validate reports every fault.
func (c DemoConfig) Validate() error {
	return check.All(
		check.Section("solver", c.Solver.Validate()),
		check.Between("nearest", c.Nearest, 0, 1),
		check.Between("careless", c.Careless, 0, 1),
	)
}

// Demonstrations are scripted parts of games, numbered from 0 without end. Safe for concurrent use.
type Demonstrations struct {
	cfg     DemoConfig
	tok     tasks.Tokenizer
	solver  tasks.Demonstrations
	perfect tasks.Demonstrations // solvers' that are right, for the documents and answers in them
	noise   bool
}

// A demonstration's part, in the order in which they come.
const (
	partProposer = iota
	partVerifier
	partSolver // and the next demonstration
	parts      = 4
)

// elsewhere is how far away the demonstration is whose document is the noise of another.
const elsewhere = 1 << 32

// Demonstration returns the tokens of the i-th demonstration and a mask with 1 where the demonstrator wrote the token. It depends on the
// configuration and i alone.
func (d *Demonstrations) Demonstration(i uint64) (tokens []int32, mask []uint8) {
	part := i % parts
	if part >= partSolver {
		return d.solver.Demonstration(i)
	}
	write := func(acts uint8, text ...string) {
		from := len(tokens)
		tokens = append(tokens, d.tok.Encode(strings.Join(text, " "))...)
		for range tokens[from:] {
			mask = append(mask, acts)
		}
	}
	c, rng := d.chainAt(i), rand.New(rand.NewPCG(d.cfg.Solver.Seed, ^i))
	if part == partProposer {
		write(0, tasks.TokenBegin, c.proposerPrompt())
		write(1, tasks.TokenAnswer, d.demonstrateQuestion(c, rng), tasks.TokenAnswerEnd)
		return tokens, mask
	}
	write(0, tasks.TokenBegin, c.joinDocuments())
	if d.noise {
		write(0, d.chainAt(i+elsewhere).lastDocument())
	}
	write(0, c.questionFrom(rng.IntN(len(c.titles)), c.field), tasks.TokenAnswer)
	write(1, c.answer, tasks.TokenAnswerEnd)
	return tokens, mask
}

// lastDocument returns the document that has the answer.
func (c chain) lastDocument() string { return c.documents[len(c.documents)-1] }

// demonstrateQuestion returns a demonstrated question.
func (d *Demonstrations) demonstrateQuestion(c chain, rng *rand.Rand) string {
	from, field := len(c.titles)-1, c.field
	if rng.Float64() >= d.cfg.Nearest {
		from = rng.IntN(len(c.titles))
	}
	if rng.Float64() < d.cfg.Careless {
		fields := slices.DeleteFunc(countries.Fields(), func(f string) bool { return f == field })
		field = fields[rng.IntN(len(fields))]
	}
	return c.questionFrom(from, field)
}

// chainAt returns the documents that the i-th right demonstration of the task countries leads through, or a later chain where two of its
// places, whose names are made up, have the same name.
func (d *Demonstrations) chainAt(i uint64) chain {
	for ; ; i += 2 * elsewhere {
		tokens, _ := d.perfect.Demonstration(i)
		question, rest, _ := strings.Cut(strings.TrimPrefix(d.tok.Decode(tokens), tasks.TokenBegin+" "), " ?")
		found := map[string]string{}
		for _, turn := range strings.Split(rest, tasks.TokenSearch+" ")[1:] {
			title, said, _ := strings.Cut(turn, " "+tasks.TokenSearchEnd+" "+tasks.TokenInfo+" ")
			found[title], _, _ = strings.Cut(said, " "+tasks.TokenInfoEnd)
		}
		if c, ok := followChain(question, func(title string) string { return found[title] }); ok {
			return c
		}
	}
}
