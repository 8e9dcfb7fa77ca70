package api

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// Name is the type's in a configuration.
const Name = "api"

// Config says which questions there are.
type Config struct {
	// Questions are asked of each source in training, 1 to 1000000, each with functions of its own. Defaults to 4000.
	Questions int `koanf:"questions"`
	// HeldOut are asked of each source in validation and as many in the test, 1 to 10000. Defaults to 200.
	HeldOut int `koanf:"held_out"`
	// Seed draws other questions, and divides the names of functions otherwise. Defaults to 1.
	Seed uint64 `koanf:"seed"`
	// Help is whether help ( ) tells a signature; without it nothing does, as a control. Defaults to true.
	Help bool `koanf:"help"`
	// Demo says how the demonstrations of the cold start are made.
	Demo DemoConfig `koanf:"demo"`
}

// DefaultConfig is as the fields say.
func DefaultConfig() Config {
	return Config{Questions: 4000, HeldOut: 200, Seed: 1, Help: true, Demo: DefaultDemoConfig()}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Between("questions", c.Questions, 1, 1<<20),
		check.Between("held_out", c.HeldOut, 1, 10_000),
		check.Section("demo", c.Demo.Validate()),
	)
}

// Type is the task's [tasks.Task].
func Type() tasks.Presetter {
	return tasks.WithPreset(tasks.New(Name, DefaultConfig, openTask), preset)
}

// preset is a run that learns the task.
func preset() tasks.Preset {
	return tasks.Preset{
		Agent: "notebook", Tools: []string{"starlark"}, Reward: "weighted",
		Settings: map[string]any{
			"model.max_positions": 128, "model.heads": 4, "model.kv_heads": 4, "trainer.limits.max_turns": 4, "trainer.limits.max_tokens": 128,
			"trainer.steps": 40, "trainer.batch_groups": 32, "trainer.minibatches": 2, "trainer.cold_start.steps": 5000,
		},
	}
}

// How many names there are, and how many of them functions are called by in validation and in the test alone.
const (
	nameCount    = 200
	heldOutNames = 40
)

// openTask makes the task. Names are divided by split; the demonstrations use all of them, in worlds that are made up.
func openTask(_ context.Context, cfg Config, o tasks.Opening) (*tasks.Setup, error) {
	all := shuffledNames(cfg.Seed)
	data := &tasks.Dataset{Name: o.Name, Questions: map[tasks.Split][]schemas.Prompt{
		tasks.Validation: drawQuestions(cfg.Seed, tasks.Validation, all[:heldOutNames], cfg.HeldOut),
		tasks.Test:       drawQuestions(cfg.Seed, tasks.Test, all[heldOutNames:2*heldOutNames], cfg.HeldOut),
		tasks.Train:      drawQuestions(cfg.Seed, tasks.Train, all[2*heldOutNames:], cfg.Questions),
	}}
	if err := data.Validate(); err != nil {
		return nil, err
	}
	s := &tasks.Setup{
		Data: data, Tokenizer: o.Tokenizer, Worlds: []tasks.World{functions{cfg.Help}}, About: About, Phrase: tasks.AsQuestion,
		Demonstrations: tasks.NewScripted(script{cfg.Demo, all}.demonstrationAt),
		HeldOut:        " about functions\nthat no training question names",
	}
	if s.Tokenizer == nil {
		tok, err := newTokenizer(all, o.Texts)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
		s.Tokenizer = tok
	}
	return s, nil
}

// shuffledNames returns the names in an order of the seed's.
func shuffledNames(seed uint64) []string {
	all := functionNames(nameCount)
	rng := rand.New(rand.NewPCG(seed, 7))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}
