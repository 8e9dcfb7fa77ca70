package library

import (
	"context"

	"github.com/weir-rl/weir/producers/tasks"
)

// Type is the task's [tasks.Task].
func Type() tasks.Presetter {
	return tasks.WithPreset(tasks.New(Name, DefaultConfig, openTask), preset)
}

// preset is a run that learns the task in some 50 steps.
func preset() tasks.Preset {
	return tasks.Preset{
		Agent: "search", Tools: []string{"search"}, Reward: "weighted",
		Settings: map[string]any{
			"model.max_positions": 192, "model.heads": 4, "model.kv_heads": 4, "trainer.limits.max_turns": 6, "trainer.limits.max_tokens": 192,
			"trainer.steps": 50, "trainer.batch_groups": 16, "trainer.minibatches": 2, "trainer.cold_start.steps": 2000,
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
