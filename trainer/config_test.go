package trainer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/selection"
)

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	require.NoError(t, DefaultConfig().Validate())
}

func TestValidateReportsEveryFaultByItsKey(t *testing.T) {
	t.Parallel()
	c := Config{Eta: -1, Depth: -2, MinGroup: 3, GroupSize: 2}
	c.Optimizer = learner.Optimizer{Beta1: 1, Beta2: -1, FinalRatio: 2, WeightDecay: -1, ClipNorm: -1, WarmupSteps: -1}
	c.Selection.DropRate, c.Selection.Overlong.Limit = 2, -1
	c.Limits.Timeout = -time.Second
	c.Advantage.Name, c.Loss.Name = "grppo", "ppp"
	c.Critic = learner.Critic{Network: "two", Folder: "f", WarmupSteps: -1}
	err := c.Validate()
	for _, want := range []string{
		"steps: 0", "batch_groups: 0", "min_group: 3: must not exceed group_size (2)", "eta: -1", "depth: -2",
		"epochs: 0", "minibatches: 0", "micro_tokens: 0", `proximal: unknown ""`,
		"optimizer.learning_rate: 0", "optimizer.schedule", "optimizer.warmup_steps", "optimizer.final_ratio",
		"optimizer.beta1", "optimizer.beta2", "optimizer.epsilon", "optimizer.weight_decay", "optimizer.clip_norm",
		`advantage.name: unknown "grppo": did you mean "grpo"?`, `loss.name: unknown "ppp": did you mean "ppo"?`,
		`critic.network: unknown "two"`, `critic.folder: "f"`, "critic.warmup_steps: -1", "critic.optimizer.learning_rate: 0",
		"sampling.temperature: 0", "limits.max_tokens: 0", "limits.timeout: -1s",
		"cold_start.batch: 0", "cold_start.optimizer.learning_rate: 0", "checkpoint.dir", "checkpoint.keep", "checkpoint.messages", "selection.drop_rate: 2", "selection.overlong.limit: -1",
		"publish.dtype", "publish.shard_bytes",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestAnOptionThatARunCannotHonourIsRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"advantage.normalize_process: true":                  func(c *Config) { c.Advantage.Name, c.Advantage.NormalizeProcess = "remax", true },
		"critic.network: none: advantage gae needs a critic": func(c *Config) { c.Advantage.Name = "gae" },
		"critic.warmup_steps: 3: there is no critic":         func(c *Config) { c.Critic.WarmupSteps = 3 },
		"selection.resample.by: best: a critic": func(c *Config) {
			c.Critic.Network, c.Selection.Resample.By, c.Selection.Resample.Take = learner.CriticHead, selection.ResampleBest, 4
		},
		// Defect N16: a gradient of 0 in every step.
		"group_size: 1: advantage grpo is 0 for groups of fewer than 2": func(c *Config) { c.GroupSize, c.MinGroup = 1, 1 },
		"min_group: 1: advantage grpo_passk":                            func(c *Config) { c.Advantage.Name, c.MinGroup = "grpo_passk", 1 },
		// As Finding Q8 of the core's second review: no step can be made, or it teaches nothing.
		"selection.resample.take: 1: must be between 2, what advantage grpo compares": func(c *Config) {
			c.Selection.Resample.By, c.Selection.Resample.Take = selection.ResampleCorrect, 1
		},
		"selection.keep_single: false: with group_size 1": func(c *Config) {
			c.Advantage.Name, c.GroupSize, c.MinGroup, c.Selection.KeepSingle = "reinforce_pp", 1, 1, false
		},
		"selection.accumulate.rows: 97: batch_groups (4)": func(c *Config) {
			c.BatchGroups, c.Minibatches, c.Limits.MaxSegments, c.Selection.Accumulate.Rows = 4, 1, 1, 97
		},
		"advantage.outcome_weight: 0: advantage prime_rloo is 0": func(c *Config) {
			c.Advantage.Name, c.Advantage.Own = "prime_rloo", &advantage.PrimeRLOO{Alone: advantage.Alone{Single: advantage.SingleZero}}
		},
		`loss.options.correction.rules: 0: "mask token ratio 2 3": bounds 2 to 3: must have 1 between them`: func(c *Config) {
			c.Loss.Options = loss.Keys(c.Loss.Name)
			loss.SharedOf(c.Loss.Options).Correction.Rules = []string{"mask token ratio 2 3"}
		},
		`"clamp mean k1 0.1 -": bounds 0.1 to -: must have 0 between them`: func(c *Config) {
			c.Loss.Options = loss.Keys(c.Loss.Name)
			loss.SharedOf(c.Loss.Options).Correction.Rules = []string{"clamp mean k1 0.1 -"}
		},
		"critic.warmup_steps: 60: the run has 60 steps": func(c *Config) {
			c.Advantage.Name, c.Critic.Network, c.Steps, c.Critic.WarmupSteps = "gae", learner.CriticHead, 60, 60
		},
	} {
		c := DefaultConfig()
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
	for name, change := range map[string]func(*Config){
		"the best of one are compared with all": func(c *Config) { c.Selection.Resample.By, c.Selection.Resample.Take = selection.ResampleBest, 1 },
		"as many rows as three rounds bring": func(c *Config) {
			c.BatchGroups, c.Minibatches, c.Limits.MaxSegments, c.Selection.Accumulate.Rows = 4, 1, 1, 96
		},
		"a warm-up up to the last step": func(c *Config) {
			c.Advantage.Name, c.Critic.Network, c.Steps, c.Critic.WarmupSteps = "gae", learner.CriticHead, 60, 59
		},
		"the outcome alone": func(c *Config) {
			keys := advantage.Keys("prime_rloo").(*advantage.PrimeRLOO)
			keys.ProcessWeight = 0
			c.Advantage.Name, c.Advantage.Own = "prime_rloo", keys
		},
	} {
		c := DefaultConfig()
		c.Checkpoint.Dir = t.TempDir()
		change(&c)
		require.NoError(t, c.Validate(), name)
	}
}

// Defect N19: each fault is a line of its own with its whole key, and one fault is told once.
func TestEachFaultIsToldOnceUnderItsOwnKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*Config)
		want   []string
	}{
		{func(c *Config) { c.Eta = -1 }, []string{"eta: -1: must not be negative"}},
		{func(c *Config) { c.Depth = 9 }, []string{"depth: 9: must be -1, or between 0 and eta (4)"}},
		{func(c *Config) { c.Hold = 5 }, []string{"hold: 5: must be between 0 and the depth (4)"}},
		{
			func(c *Config) { c.Reuse = 6 },
			[]string{"reuse: 6: the last use of a batch is 5 versions after its first: must not exceed eta (4) plus 1"},
		},
		{
			func(c *Config) { c.Reuse, c.Hold, c.Checkpoint.Batches, c.Staleness = 2, 1, 0, "wait" },
			[]string{
				"reuse: 2: a batch that is used again must outlive a restart: checkpoint.batches must not be 0",
				"reuse: 2: hold (1) counts a fresh batch at each version: set either",
				"reuse: 2: staleness wait counts a fresh batch at each version: set it to refuse",
			},
		},
		{
			func(c *Config) { c.Reuse, c.Selection.Accumulate.Rows = 2, 64 },
			[]string{"reuse: 2: selection.accumulate.rows (64) counts a fresh batch at each version: set it to 0"},
		},
		{func(c *Config) { c.Selection.Resample.By = selection.ResampleCorrect }, []string{"selection.resample.take: 0: must be positive"}},
		{
			func(c *Config) { c.Selection.Resample.By, c.Selection.Resample.Take = selection.ResampleCorrect, 99 },
			[]string{"selection.resample.take: 99: must be between 2, what advantage grpo compares, and group_size (8)"},
		},
		{
			func(c *Config) {
				c.Advantage.Own = &advantage.GRPO{
					Grouped: advantage.Grouped{Alone: advantage.Alone{Single: "none"}}, Scaling: advantage.Scaling{StdEpsilon: -1},
				}
			},
			[]string{`advantage.single: unknown "none" (valid: zero, reward)`, "advantage.std_epsilon: -1: must not be negative"},
		},
		{
			func(c *Config) {
				c.Loss.Name, c.Loss.Options = "gmpo", loss.Keys("gmpo")
				loss.SharedOf(c.Loss.Options).Aggregation.Mode = loss.TokenMean
			},
			[]string{`loss.options.aggregation.mode: unknown "token-mean" (valid: seq-mean-token-sum)`},
		},
	} {
		cfg := DefaultConfig()
		c.change(&cfg)
		joined, ok := cfg.Validate().(interface{ Unwrap() []error })
		require.True(t, ok, c.want)
		var have []string
		for _, e := range joined.Unwrap() {
			have = append(have, e.Error())
		}
		require.Equal(t, c.want, have)
	}
}
