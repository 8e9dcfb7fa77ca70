package trainer

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/loss"
)

func TestEveryLossAndAdvantageTrainsOrSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, change func(*Config)) error {
		cfg := testConfig(t.TempDir())
		cfg.Steps = 2
		change(&cfg)
		w := newValuedWorld(vocab, cfg)
		steps := 0
		err := Run(t.Context(), cfg, Deps{
			Engine: enginetest.BigramOf(gpu.Config{VocabSize: vocab, ValueHead: cfg.Critic.Network == learner.CriticHead}), Stream: w, Prompts: prompts{vocab},
			NewEngine: func(c gpu.Config) (gpu.Engine, error) { return enginetest.BigramOf(c), nil },
			Observer: func(e schemas.Event) {
				if e.Type == schemas.EventStepDone {
					steps++
				}
			},
		})
		if err == nil {
			require.Equal(t, 2, steps)
		}
		return err
	}
	for _, name := range loss.Names() {
		t.Run("loss "+name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, run(t, func(c *Config) { c.Loss.Name = name }))
		})
	}
	for _, name := range advantage.Names() {
		t.Run("advantage "+name, func(t *testing.T) {
			t.Parallel()
			err := run(t, func(c *Config) { c.Advantage.Name, c.Minibatches = name, 1 })
			if slices.Contains(advantage.FactsOf(name, nil).Requires, "Values") {
				require.ErrorContains(t, err, "needs a critic")
				return
			}
			require.NoError(t, err)
		})
		for _, network := range []string{learner.CriticHead, learner.CriticOwn} {
			t.Run("advantage "+name+", critic "+network, func(t *testing.T) {
				t.Parallel()
				require.NoError(t, run(t, func(c *Config) { c.Advantage.Name, c.Critic.Network, c.Critic.WarmupSteps = name, network, 1 }))
			})
		}
	}
	for _, name := range []string{learner.ProximalRecompute, loss.ApproximateLogLinear, loss.ApproximateLinear, loss.ApproximateRollout} {
		t.Run("proximal "+name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, run(t, func(c *Config) { c.Proximal, c.Eta, c.Depth = name, 1, 1 }))
		})
	}
	for name, change := range map[string]func(*Config){
		"duration":  func(c *Config) { c.Loss.Duration.Share = 0.5 },
		"entropy":   func(c *Config) { c.Loss.EntropyCoef = 0.01 },
		"overlong":  func(c *Config) { c.Selection.Overlong.Limit, c.Selection.Overlong.Buffer = 4, 2 },
		"epochs":    func(c *Config) { c.Epochs = 3 },
		"drop void": func(c *Config) { c.Selection.DropVoid = true },
		"unmasked":  func(c *Config) { c.MaskTools = false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, run(t, change))
		})
	}
}
