package trainer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/internal/perturb"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
)

// Groups that are open when the advantage is changed were issued without a baseline, or with one too many.
func TestTheAdvantageCanBeChangedBetweenStarts(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Eta, cfg.Depth = 2, -1
	w := newWorld(vocab)
	w.noise, w.lag = true, 2
	for i, name := range []string{"grpo", "remax", "rae", "remax", "grpo"} {
		cfg.Advantage.Name, cfg.Steps = name, int64(3*(i+1))
		train(t, cfg, w)
		c, err := checkpoint.Read(checkpoint.StepDir(cfg.Checkpoint.Dir, cfg.Steps), cfg.Steps)
		require.NoError(t, err)
		require.Equal(t, name == "rae", c.State.Advantage != nil, "what was learnt is kept for as long as it is used")
		records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
		require.NoError(t, err)
		for _, r := range records[len(records)-3:] {
			for _, g := range r.Groups {
				require.True(t, g.Baseline != nil || name != "remax", "%s in step %d", g.Group, r.Step)
			}
		}
	}
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil).Err())
}

func TestABaselineCountsInNoMeanButItsOwn(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Advantage.Name = "remax"
	metrics := map[int64]map[string]float64{}
	observe(t, cfg, newWorld(vocab), func(e schemas.Event) { metrics[e.Step] = e.Metrics })
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	total := 0.0
	for _, r := range records[1:] {
		var rewards, baselines runningMean
		for _, g := range r.Groups {
			baselines.addValue(g.Baseline.Reward)
			for _, m := range g.Members {
				rewards.addValue(m.Reward)
			}
		}
		got := metrics[r.Step]
		require.InDelta(t, rewards.value(), got["reward/mean"], 1e-12)
		require.InDelta(t, baselines.value(), got["reward/baseline"], 1e-12)
		require.InDelta(t, rewards.count, got["batch/trajectories"], 0)
		total += rewards.count
	}
	require.InDelta(t, total, metrics[cfg.Steps]["total/trajectories"], 0)
}

func TestAGroupOfOneTrainsOrIsRefusedBeforeTheRun(t *testing.T) {
	t.Parallel()
	for _, name := range advantage.Names() {
		cfg := testConfig(t.TempDir())
		cfg.Steps, cfg.GroupSize, cfg.MinGroup, cfg.Advantage.Name = 2, 1, 1, name
		cfg.Critic.Network = learner.CriticHead
		if err := cfg.Validate(); err != nil {
			require.Greater(t, cfg.Advantage.Facts().LearnsFrom, 1)
			require.ErrorContains(t, err, "group_size: 1: advantage "+name+" is 0 for groups of fewer than 2")
			if name == "grpo_passk" {
				require.ErrorContains(t, err, "min_group: 1: advantage grpo_passk compares at least 2")
				continue
			}
			cfg.Loss.Name = "cross_entropy" // which no advantage matters to
			require.NoError(t, cfg.Validate())
			if name == "max_rl" {
				continue
			}
			cfg.Loss.Name, cfg.Advantage.Own = DefaultConfig().Loss.Name, advantage.Keys(name)
			perturb.Overlay(cfg.Advantage.Own, advantage.Alone{Single: advantage.SingleReward}, false)
		}
		engine := enginetest.BigramOf(gpu.Config{VocabSize: vocab, ValueHead: true})
		require.NoError(t, Run(t.Context(), cfg, Deps{Engine: engine, Stream: newValuedWorld(vocab, cfg), Prompts: prompts{vocab}}), name)
	}
}
