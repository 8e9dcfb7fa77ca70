package countries

import (
	"context"

	"github.com/weir-rl/weir/producers/tasks"
)

// Type is the task's [tasks.Task].
func Type() tasks.Presetter {
	return tasks.WithPreset(tasks.New(Name, DefaultConfig, openTask), preset)
}

// preset is a run that learns the task in a few steps.
func preset() tasks.Preset {
	return tasks.Preset{
		Agent: "search", Tools: []string{"search"}, Reward: "weighted",
		Settings: map[string]any{
			"model.max_positions": 160, "trainer.limits.max_turns": 4, "trainer.limits.max_tokens": 96,
			"trainer.steps": 30, "trainer.batch_groups": 32, "trainer.minibatches": 4, "trainer.cold_start.steps": 1200,
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
		HeldOut: " about countries and regions\nthat no training question names",
	}, nil
}
