package selfplay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/agents/selfplay"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/countries"
	"github.com/weir-rl/weir/producers/tasks/facts"
	"github.com/weir-rl/weir/schemas"
)

// Name is the type's in a configuration.
const Name = "selfplay"

// Config sets the division of the countries, and the view of each part of a game.
type Config struct {
	facts.Division `koanf:",squash"`
	// Noise shows the verifier the document of another country beside the document of the question. Defaults to true.
	Noise bool `koanf:"noise"`
	// Demo says how the demonstrations of the cold start are made.
	Demo DemoConfig `koanf:"demo"`
}

// DefaultConfig holds out 30 countries to choose by and 49 to report on.
func DefaultConfig() Config {
	return Config{Division: facts.DefaultDivision(), Noise: true, Demo: DefaultDemoConfig()}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(c.countriesConfig(c.Demo.Solver).Validate(), check.Section("demo", c.Demo.Validate()))
}

// countriesConfig returns the configuration of the task countries with these demonstrations.
func (c Config) countriesConfig(demo countries.DemoConfig) countries.Config {
	return countries.Config{Division: c.Division, Demo: demo}
}

// Type is the task's [tasks.Task].
func Type() tasks.Presetter {
	return tasks.WithPreset(tasks.New(Name, DefaultConfig, openTask), preset)
}

// preset is a run of games with four solvers that make three searches each.
func preset() tasks.Preset {
	return tasks.Preset{
		Agent: selfplay.Name, Tools: []string{"search"}, Reward: "selfplay",
		Settings: map[string]any{
			"model.max_positions": 160, "trainer.limits.max_turns": 12, "trainer.limits.max_tokens": 128,
			"trainer.steps": 40, "trainer.batch_groups": 16, "trainer.minibatches": 4, "trainer.cold_start.steps": 2400,
		},
	}
}

// openTask makes the task.
func openTask(_ context.Context, cfg Config, o tasks.Opening) (*tasks.Setup, error) {
	t, err := New(cfg, o)
	if err != nil {
		return nil, err
	}
	return &tasks.Setup{
		Data: t.Dataset, Tokenizer: t.Tokenizer, Demonstrations: t.Demonstrations, About: About, Phrase: tasks.AsQuestion,
		HeldOut: " about countries and regions\nthat no training document names",
	}, nil
}

// About describes the questions of a source of prompts; "" of a source that does not exist.
func About(source string) string {
	kind, game := strings.CutPrefix(source, gamePrefix)
	about := countries.About(kind)
	if game && about != "" {
		return "a question about " + about
	}
	return about
}

// gamePrefix begins the sources of documents: the rest is the kind of the farthest question about them.
const gamePrefix = "game-"

// Task is the data set, its tokenizer and its demonstrations.
type Task struct {
	*tasks.Dataset
	Tokenizer tasks.Tokenizer
	*Demonstrations
}

// New makes the task, with the opening's tokenizer if there is any. The same Config makes the same task on every machine.
func New(cfg Config, o tasks.Opening) (*Task, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("task selfplay: %w", err)
	}
	o.Texts = append(slices.Clone(o.Texts), wording)
	told, err := countries.New(cfg.countriesConfig(cfg.Demo.Solver), o)
	if err != nil {
		return nil, fmt.Errorf("task selfplay: %w", err)
	}
	right := cfg.Demo.Solver
	right.StopEarly, right.WrongField = 0, 0
	o.Tokenizer = told.Tokenizer
	perfect, err := countries.New(cfg.countriesConfig(right), o)
	if err != nil {
		return nil, fmt.Errorf("task selfplay: %w", err)
	}
	data := &tasks.Dataset{Name: Name, Passages: told.Passages, Questions: map[tasks.Split][]schemas.Prompt{
		tasks.Train: newGames(told.Dataset, cfg.Noise), tasks.Validation: told.Questions[tasks.Validation], tasks.Test: told.Questions[tasks.Test],
	}}
	if err := data.Validate(); err != nil {
		return nil, fmt.Errorf("task selfplay: %w", err)
	}
	return &Task{Dataset: data, Tokenizer: told.Tokenizer, Demonstrations: &Demonstrations{
		cfg: cfg.Demo, tok: told.Tokenizer, solver: told.Demonstrations, perfect: perfect.Demonstrations, noise: cfg.Noise,
	}}, nil
}

// newGames makes a prompt of each training question that can be asked without its answer in it: the documents that the question leads
// through, and its answer, without the question.
func newGames(d *tasks.Dataset, noise bool) []schemas.Prompt {
	found := map[string]string{}
	for _, p := range d.Passages {
		found[spaceTokens(p.Title)] = spaceTokens(p.Text)
	}
	find := func(title string) string { return found[title] }
	var out []schemas.Prompt
	var chains []chain
	for _, q := range d.Questions[tasks.Train] {
		c, ok := followChain(q.Text, find)
		if !ok || !c.isAskable() {
			continue
		}
		chains = append(chains, c)
		out = append(out, schemas.Prompt{
			ID: Name + "/" + q.ID, Text: c.proposerPrompt(), Answers: q.Answers, Source: gamePrefix + q.Source,
			Meta: map[string]string{selfplay.MetaDocument: c.joinDocuments(), selfplay.MetaAnswer: c.answer},
		})
	}
	if noise {
		for i := range out {
			out[i].Meta[selfplay.MetaNoise] = otherChain(chains, i).lastDocument()
		}
	}
	return out
}

// otherChain returns the chain of another document than the documents of the i-th, some way from it.
func otherChain(chains []chain, i int) chain {
	for step := range chains {
		c := chains[(i+len(chains)/3+step)%len(chains)]
		if !slices.Contains(chains[i].documents, c.lastDocument()) {
			return c
		}
	}
	return chains[i]
}
