package learner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/selection"
)

// Defect N16: a setting that the chosen algorithms pass over is known, with what passes it over.
func TestUnreadNamesWhatPassesASettingOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key, want string
		change    func(*Config)
	}{
		{"loss.options.aggregation.length", "loss.options.aggregation.mode is token-mean", nil},
		{"loss.options.correction.cap", "loss.options.correction.weight is none", func(c *Config) { c.Loss.Name = "ppo" }},
		{"loss.options.correction.cap", "", nil},
		{"loss.kl.kind", "loss.kl.coef is 0", nil},
		{"loss.kl.target", "loss.kl.in is loss: the coefficient adapts in rewards alone", func(c *Config) { c.Loss.KL.Coef = 1 }},
		{"loss.kl.horizon", "loss.kl.target is 0", func(c *Config) { c.Loss.KL.Coef, c.Loss.KL.In = 1, loss.KLInReward }},
		{"loss.kl.clamp", "loss.kl.kind is k1+", func(c *Config) { c.Loss.KL.Coef, c.Loss.KL.Kind = 1, "k1+" }},
		{"loss.kl.clamp", "", func(c *Config) { c.Loss.KL.Coef, c.Loss.KL.Kind, c.Loss.KL.ClampAll = 1, "k1+", true }},
		{"loss.kl.clamp_all", "loss.kl.kind is k3, whose estimate is bounded all the same", func(c *Config) { c.Loss.KL.Coef = 1 }},
		{"loss.kl.log_clamp", "loss.kl.kind is abs", func(c *Config) { c.Loss.KL.Coef, c.Loss.KL.Kind = 1, "abs" }},
		{"advantage.normalize.epsilon", "advantage.normalize.std is none", nil},
		{"advantage.normalize.leave_one_out", "advantage.normalize.mean is none", nil},
		{"advantage.normalize.leave_one_out", "", func(c *Config) { c.Advantage.Normalize.Mean = "batch" }},
		{"proximal", "loss reinforce takes no ratio against the policy at the start of the step", func(c *Config) { c.Loss.Name = "reinforce" }},
		{"proximal", "", nil},
		{
			"critic.optimizer.beta1", "critic.network is head, and critic.warmup_steps 0: the policy's optimizer moves both",
			func(c *Config) { c.Advantage.Name, c.Critic.Network = "gae", CriticHead },
		},
		{"critic.optimizer.beta1", "", func(c *Config) { c.Advantage.Name, c.Critic.Network, c.Critic.WarmupSteps = "gae", CriticHead, 3 }},
		{"critic.optimizer.warmup_steps", "", func(c *Config) { c.Advantage.Name, c.Critic.Network = "gae", CriticHead }},
		{"loss.kl.target", "", func(c *Config) { c.Loss.KL.Coef, c.Loss.KL.In = 1, loss.KLInReward }},
		{"loss.value.clip", "critic.network is none", nil},
		{"advantage.lambda", "advantage.token_credit is uniform", func(c *Config) { choose(c, "bilevel", func(*advantage.Bilevel) {}) }},
		{"advantage.lambda", "", func(c *Config) { choose(c, "bilevel", func(k *advantage.Bilevel) { k.TokenCredit = advantage.ByGAE }) }},
		{"advantage.bootstrap", "advantage grpo reads no values", nil},
		{"advantage.normalize.mean", "", nil},
		{
			"advantage.tokens", "advantage grpo is the same over any tokens, and there is no critic",
			func(c *Config) { c.Advantage.Tokens = TokensAll },
		},
		{"advantage.tokens", "", func(c *Config) { c.Advantage.Tokens, c.MaskTools = TokensSampled, false }},
		{"advantage.tokens", "", func(c *Config) { c.Advantage.Tokens, c.Critic.Network = TokensAll, CriticHead }},
		{"advantage.tokens", "", func(c *Config) { c.Advantage.Tokens, c.Advantage.Normalize.Std = TokensAll, "batch" }},
		{"advantage.tokens", "", func(c *Config) { choose(c, "grpo", func(k *advantage.GRPO) { k.LengthPenalty.Turns = 1 }) }},
		{"advantage.tokens", "", func(c *Config) { c.Advantage.Name = "opo" }},
		{"advantage.tokens", "", func(c *Config) { c.Advantage.Name, c.Critic.Network = "gae", CriticHead }},
		{"critic.network", "advantage grpo reads no values: the critic is trained and never asked", func(c *Config) { c.Critic.Network = CriticOwn }},
		{"critic.network", "", func(c *Config) { c.Advantage.Name, c.Critic.Network = "gae", CriticOwn }},
		{"critic.optimizer.learning_rate", "critic.network is none", nil},
		{"selection.resample.take", "selection.resample.by is off", nil},
		{"selection.resample.right", "selection.resample.by is not on_correct", func(c *Config) { c.Selection.Resample.By = selection.ResampleBest }},
		{"selection.overlong.factor", "selection.overlong.limit is 0", nil},
		{"selection.overlong.mask", "", nil},
		{"optimizer.final_ratio", "optimizer.schedule is constant", nil},
		{"steps", "", nil},
	} {
		cfg := DefaultConfig()
		if c.change != nil {
			c.change(&cfg)
		}
		require.Equal(t, c.want, cfg.Unread(c.key), c.key)
	}
}
