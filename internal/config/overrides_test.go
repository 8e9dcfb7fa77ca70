package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
)

// The optimizers of the critic and the cold start have the policy's settings, but for what is set there and for their own defaults.
func TestOptimizersOverrideThePolicys(t *testing.T) {
	t.Parallel()
	cfg, _, err := Resolve(builtin.Doors(), Sources{Flags: map[string]string{
		"trainer.optimizer.weight_decay": "0.1", "trainer.optimizer.learning_rate": "0.5", "trainer.optimizer.schedule": "cosine",
		"trainer.critic.optimizer.beta1": "0.8", "trainer.optimizer.beta1": "0.7",
	}})
	require.NoError(t, err)
	require.NoError(t, cfg.Finish())
	policy, critic, cold := cfg.Trainer.Optimizer, cfg.Trainer.Critic.Optimizer, cfg.Trainer.ColdStart.Optimizer
	require.Equal(t, []any{0.1, 0.5, "cosine", 0.7}, []any{policy.WeightDecay, policy.LearningRate, policy.Schedule, policy.Beta1})
	require.Equal(t, []any{0.1, 1e-3, "cosine", 0.8}, []any{critic.WeightDecay, critic.LearningRate, critic.Schedule, critic.Beta1})
	require.Equal(t, []any{0.1, 4e-3, "linear", 0.7}, []any{cold.WeightDecay, cold.LearningRate, cold.Schedule, cold.Beta1})
	require.Equal(t, map[string]any{"learning_rate": 1e-3}, cfg.OwnDefaults("trainer.critic.optimizer"))

	same := Default(builtin.Doors())
	require.Equal(t, same.Defaults()["trainer.optimizer.beta2"], Values(same)["trainer.critic.optimizer.beta2"])
	require.Empty(t, Changed(same))
}
