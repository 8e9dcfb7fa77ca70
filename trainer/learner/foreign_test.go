package learner_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/internal/perturb"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/loss"
)

const vocab = 6

// rollouts is a batch of two groups of four.
func rollouts(policy *enginetest.Bigram, version int64) *batch.Batch {
	b := &batch.Batch{Version: version}
	for g := range uint64(2) {
		var group batch.Taken
		for s := range 4 {
			ticket := &schemas.Ticket{Cursor: g, Sample: s, Seed: batch.Seed(1, g+uint64(version), 0, s), Sampling: schemas.Sampling{Temperature: 1}}
			t := enginetest.BigramRollout(policy.Table, vocab, ticket, version)
			group.Members = append(group.Members, batch.Member{Trajectory: t, Reward: t.Reward, Return: t.Reward})
		}
		b.Groups = append(b.Groups, group)
	}
	return b
}

// train takes three steps under a configuration and returns the policy.
func train(t *testing.T, cfg learner.Config) []float32 {
	t.Helper()
	cfg.Steps, cfg.BatchGroups, cfg.Minibatches, cfg.Optimizer.LearningRate = 3, 2, 2, 0.5
	require.NoError(t, cfg.Validate())
	policy := enginetest.NewBigram(vocab)
	l, err := learner.New(cfg, learner.Deps{Engine: policy})
	require.NoError(t, err)
	defer l.Close()
	for version := range cfg.Steps {
		stats, err := l.Learn(t.Context(), rollouts(policy, version))
		require.NoError(t, err)
		require.EqualValues(t, 2, stats.OptimizerSteps)
		require.Contains(t, stats.Metrics(), "loss/policy")
	}
	return policy.Table
}

// centred is dr_grpo's formula.
func centred(rewards, advantages []float64) {
	mean := 0.0
	for _, r := range rewards {
		mean += r / float64(len(rewards))
	}
	for i, r := range rewards {
		advantages[i] = r - mean
	}
}

// A program's own estimator and loss train by their names, and as the stock ones of the same formulas do.
func TestAForeignEstimatorAndLossTrain(t *testing.T) {
	t.Parallel()
	cfg := learner.DefaultConfig()
	cfg.Advantage.Name, cfg.Loss.Name = "dr_grpo", "reinforce"
	want := train(t, cfg)

	cfg.Advantage.Foreign = []advantage.Foreign{advantage.PerGroup("mine", centred)}
	cfg.Loss.Foreign = []loss.Foreign{loss.PerToken("mine", loss.Facts{}, func(t loss.Token) (value, slope float64) {
		return -t.Advantage * t.Logprob, -t.Advantage
	})}
	cfg.Advantage.Name, cfg.Loss.Name = "mine", "mine"
	cfg.Loss.Options = loss.Keys("mine", cfg.Loss.Foreign...)
	perturb.Overlay(cfg.Loss.Options, loss.Ratio{Old: loss.OldBehaviour}, false)
	got := train(t, cfg)
	require.NotEqual(t, enginetest.NewBigram(vocab).Table, got)
	require.InDeltaSlice(t, want, got, 1e-6)

	// Newcomer's friction N18: a name that two estimators have is refused before the run, and listed once.
	twice := cfg
	twice.Advantage.Foreign, twice.Advantage.Name = []advantage.Foreign{advantage.PerGroup("grpo", centred)}, "grpo"
	require.ErrorContains(t, twice.Validate(), "advantage grpo: there are two of this name")
	require.Len(t, advantage.Names(twice.Advantage.Foreign...), len(advantage.Names()))

	cfg.Advantage.Name = "mime"
	require.ErrorContains(t, cfg.Validate(), `advantage.name: unknown "mime": did you mean "mine"?`)
}

// baseline compares each trajectory with the best so far, and remembers it.
type baseline struct{ best float64 }

func (*baseline) Name() string { return "best_so_far" }

func (b *baseline) Estimate(in *advantage.Batch, out *advantage.Result) error {
	out.Advantages = make([]float64, len(in.Mask))
	for row := range in.Rows() {
		sum := 0.0
		for i := in.Offsets[row]; i < in.Offsets[row+1]; i++ {
			sum += in.Rewards[i]
		}
		b.best = math.Max(b.best, sum)
		for i := in.Offsets[row]; i < in.Offsets[row+1]; i++ {
			out.Advantages[i] = (sum - b.best) * float64(in.Mask[i])
		}
	}
	return nil
}

func (b *baseline) State() ([]byte, error)     { return json.Marshal(b.best) }
func (b *baseline) Restore(state []byte) error { return json.Unmarshal(state, &b.best) }

// What a foreign estimator has learnt is part of the state that a learner goes on from.
func TestAForeignEstimatorGoesOnFromASnapshot(t *testing.T) {
	t.Parallel()
	var made []*baseline
	cfg := learner.DefaultConfig()
	cfg.BatchGroups, cfg.Optimizer.LearningRate = 2, 0.5
	cfg.Advantage.Name = "best_so_far"
	cfg.Advantage.Foreign = []advantage.Foreign{{Name: "best_so_far", Make: func(any) (advantage.Estimator, error) {
		made = append(made, &baseline{})
		return made[len(made)-1], nil
	}}}
	require.NoError(t, cfg.Validate())
	policies := []*enginetest.Bigram{enginetest.NewBigram(vocab), enginetest.NewBigram(vocab)}
	first, err := learner.New(cfg, learner.Deps{Engine: policies[0]})
	require.NoError(t, err)
	defer first.Close()
	_, err = first.Learn(t.Context(), rollouts(policies[0], 0))
	require.NoError(t, err)
	state, err := first.Snapshot()
	require.NoError(t, err)
	state.Policy, err = learner.SaveNetwork(t.Context(), policies[0], t.TempDir())
	require.NoError(t, err)
	require.Positive(t, made[0].best)

	second, err := learner.New(cfg, learner.Deps{Engine: policies[1]})
	require.NoError(t, err)
	defer second.Close()
	require.NoError(t, second.Restore(t.Context(), state))
	require.Equal(t, made[0].best, made[1].best)
	b := rollouts(policies[0], 1)
	for _, l := range []*learner.Learner{first, second} {
		_, err := l.Learn(t.Context(), b)
		require.NoError(t, err)
	}
	require.Equal(t, policies[0].Table, policies[1].Table, "the same batch, the same weights")
}

// An estimator that needs what trajectories do not carry is refused before the first batch.
func TestAForeignEstimatorThatNeedsTooMuchIsRefused(t *testing.T) {
	t.Parallel()
	cfg := learner.DefaultConfig()
	cfg.Advantage.Name = "best_so_far"
	cfg.Advantage.Foreign = []advantage.Foreign{{
		Name: "best_so_far", Make: func(any) (advantage.Estimator, error) { return &baseline{}, nil },
		Facts: advantage.Facts{Requires: []string{"StepRewards"}},
	}}
	_, err := learner.New(cfg, learner.Deps{Engine: enginetest.NewBigram(vocab)})
	require.ErrorContains(t, err, "advantage best_so_far needs StepRewards, which trajectories do not carry")
	cfg.Advantage.Foreign[0].Facts.Requires = []string{"Values"}
	require.ErrorContains(t, cfg.Validate(), "critic.network: none: advantage best_so_far needs a critic")
}
