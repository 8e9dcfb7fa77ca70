package atlas

import (
	"context"
	"fmt"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/facts"
)

// Name is the type's in a configuration.
const Name = "atlas"

// Config says which questions there are.
type Config struct {
	facts.Division `koanf:",squash"`
	// Questions are asked of each source in training, 1 to 100000, as far as there are countries for them. Defaults to 3000.
	Questions int `koanf:"questions"`
	// HeldOut are asked of each source in validation and as many in the test, 1 to 10000, as far as there are countries for them. Defaults
	// to 100.
	HeldOut int `koanf:"held_out"`
	// Seed draws other questions about the same countries. Defaults to 1.
	Seed uint64 `koanf:"seed"`
	// Shuffled deals the facts to other countries than the answers' countries, as a control: facts that are read then are wrong. Defaults
	// to false.
	Shuffled bool `koanf:"shuffled"`
	// Demo says how the demonstrations of the cold start are made.
	Demo DemoConfig `koanf:"demo"`
}

// DefaultConfig is as the fields say.
func DefaultConfig() Config {
	return Config{Division: facts.DefaultDivision(), Questions: 3000, HeldOut: 100, Seed: 1, Demo: DefaultDemoConfig()}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		c.Faults(10, 150, 50),
		check.Between("questions", c.Questions, 1, 100_000),
		check.Between("held_out", c.HeldOut, 1, 10_000),
		check.Section("demo", c.Demo.Validate()),
	)
}

// Type is the task's [tasks.Task].
func Type() tasks.Presetter {
	return tasks.WithPreset(tasks.New(Name, DefaultConfig, openTask), preset)
}

// preset is a run that learns the task. An episode has two turns, and the longest cell some 45 tokens.
func preset() tasks.Preset {
	return tasks.Preset{
		Agent: "notebook", Tools: []string{"starlark"}, Reward: "weighted",
		Settings: map[string]any{
			"model.max_positions": 128, "trainer.limits.max_turns": 2, "trainer.limits.max_tokens": 128,
			"agents.notebook.turn_tokens": 48,
			"trainer.steps":               40, "trainer.batch_groups": 32, "trainer.minibatches": 2, "trainer.cold_start.steps": 1600,
		},
	}
}

// openTask makes the task.
func openTask(_ context.Context, cfg Config, o tasks.Opening) (*tasks.Setup, error) {
	countries, err := facts.Load()
	if err != nil {
		return nil, err
	}
	facts.Divide(countries, cfg.ValidationCountries, cfg.TestCountries, cfg.SplitSeed)
	known, err := newAtlas(countries)
	if err != nil {
		return nil, err
	}
	data := &tasks.Dataset{Name: o.Name, Questions: cfg.drawQuestions(countries, known)}
	if err := data.Validate(); err != nil {
		return nil, err
	}
	shown := known
	if cfg.Shuffled {
		shown = known.shuffleFacts(cfg.Seed)
	}
	s := &tasks.Setup{
		Data: data, Tokenizer: o.Tokenizer, Worlds: []tasks.World{world{shown}}, About: About, Phrase: tasks.AsQuestion,
		Demonstrations: tasks.NewScripted(newScript(cfg.Demo, countries).demonstrationAt),
		HeldOut:        " about countries\nthat no training question names",
	}
	if s.Tokenizer == nil {
		tok, err := newTokenizer(countries, o.Texts)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
		s.Tokenizer = tok
	}
	return s, nil
}
