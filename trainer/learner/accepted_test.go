package learner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/perturb"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/selection"
	"github.com/weir-rl/weir/trainer/stats"
)

// firstStep makes the first step of a run under a configuration, on a batch of right and wrong rollouts, and says whether the policy
// is another one after it.
func firstStep(t *testing.T, cfg Config) (trained bool, err error) {
	t.Helper()
	model := gpu.Config{
		ModelType: "llama", VocabSize: vocab, HiddenSize: 8, IntermediateSize: 12, NumLayers: 1, NumHeads: 2, NumKVHeads: 1,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 32, ValueHead: cfg.Critic.Network == CriticHead,
	}
	another := func(model gpu.Config) (gpu.Engine, error) {
		return native.New(model, native.Options{Seed: 4, Threads: 1})
	}
	engine, err := native.New(model, native.Options{Seed: 3, Threads: 1})
	require.NoError(t, err)
	defer engine.Close()
	l, err := New(cfg, Deps{Engine: engine, NewEngine: another})
	if err != nil {
		return false, err
	}
	defer l.Close()
	if l.NeedsReference() {
		require.NoError(t, l.OpenReference(func(gpu.Engine) error { return nil })) // its own weights are those of another seed
	}
	if l.critic.isNetwork() {
		model.ValueHead = true
		l.critic.engine, err = another(model)
		require.NoError(t, err)
	}
	before, err := engine.Weights(t.Context())
	require.NoError(t, err)
	if _, err := l.Learn(t.Context(), rightAndWrong(cfg)); err != nil {
		return false, err
	}
	after, err := engine.Weights(t.Context())
	require.NoError(t, err)
	for i, was := range before.Tensors {
		if was.Name == "model.embed_tokens.weight" {
			return distance(&gpu.Weights{Tensors: before.Tensors[i : i+1]}, &gpu.Weights{Tensors: after.Tensors[i : i+1]}) > 0, nil
		}
	}
	return false, fmt.Errorf("no embedding among %d tensors", len(before.Tensors))
}

// rightAndWrong are groups of four rollouts of two or three turns, with rewards of several sizes, process rewards, and the
// log-probabilities that tokens have in a policy that knows nothing.
func rightAndWrong(cfg Config) *batch.Batch {
	b := &batch.Batch{}
	random := rand.New(rand.NewPCG(3, 4))
	token := func() int32 { return random.Int32N(vocab) }
	rollout := func(sample int) batch.Member {
		turns := [][3]int32{{token(), token(), 1}, {token(), token(), 2}, {token(), token(), 1}}[:2+sample%2]
		x := dialogue(float64(sample%3)/2, schemas.StopAnswer, 1, turns...)
		for i := range x.Turns {
			x.Turns[i].Reward = 0.1 * float64((i+sample)%2)
		}
		for i, m := range x.Segments[0].ActionMask {
			x.Segments[0].Logprobs[i] = -float32(m) * float32(math.Log(vocab))
		}
		return batch.Member{Trajectory: x, Reward: x.Reward, Return: x.Reward}
	}
	for range 3 {
		group := batch.Taken{}
		for sample := range 4 {
			group.Members = append(group.Members, rollout(sample))
		}
		if cfg.Baseline() {
			group.Baseline = new(rollout(1))
		}
		b.Groups = append(b.Groups, group)
	}
	return b
}

// mustTrain holds what Validate accepts against a first step.
func mustTrain(t *testing.T, what string, cfg Config) (accepted bool) {
	t.Helper()
	if cfg.Validate() != nil {
		return false
	}
	trained, err := firstStep(t, cfg)
	require.NoError(t, err, what)
	require.True(t, trained, "%s: the policy is as it was", what)
	return true
}

// texts are what a setting that is a text can be, of all settings together.
func texts() []string {
	own := []string{
		CriticNone, CriticHead, CriticOwn, TokensSampled, TokensAll, BootstrapLimits, ScheduleCosine, ScheduleLinear, ProximalRecompute,
		loss.ApproximateLinear, loss.ApproximateLogLinear, loss.ApproximateRollout, loss.KLInReward, loss.OldBehaviour, loss.OldProximal,
		loss.LevelToken, loss.LevelSequence, loss.LevelSequenceToken, loss.WeightToken, loss.WeightSequence, loss.WeightGeometric, loss.OfCurrent, loss.OfProximal,
		loss.TokenMean, loss.SeqMeanTokenSum, loss.SeqMeanTokenMean, loss.SeqMeanTokenSumNorm, "k1", "k2", "k3", "abs",
		selection.ResampleBest, selection.ResampleCorrect, stats.LevelBatch, stats.LevelGroup,
		advantage.SingleReward, advantage.ByGAE, advantage.UnitTurn, advantage.UnitSegment, advantage.AnchorContext,
	}
	return append(append(own, loss.Names()...), advantage.Names()...)
}

// Findings Q7 and Q8 of the core's second review: whatever Validate accepts, a step can be made with and teaches the policy something.
// Each setting is changed by itself, on top of what others depend on.
func TestWhatValidateAcceptsTrainsThePolicy(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"default":        func(*Config) {},
		"one update":     func(c *Config) { c.Minibatches = 1 },
		"a critic apart": func(c *Config) { c.Advantage.Name, c.Critic.Network = "gae", CriticOwn },
		"two levels": func(c *Config) {
			choose(c, "bilevel", func(k *advantage.Bilevel) { k.StepCredit = advantage.ByGAE })
			c.Critic.Network = CriticHead
		},
		"a penalty":       func(c *Config) { c.Loss.KL.Coef, c.Loss.KL.In = 0.1, loss.KLInReward },
		"process rewards": func(c *Config) { c.Advantage.Name = "prime_rloo" },
		"unmasked":        func(c *Config) { c.MaskTools = false },
		"unmasked, at once": func(c *Config) {
			c.MaskTools, c.Minibatches, c.Loss.KL.Coef, c.Loss.KL.In = false, 1, 0.1, loss.KLInReward
		},
		"without a proximal": func(c *Config) { c.Proximal = loss.ApproximateLogLinear },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig()
			cfg.Optimizer.LearningRate = 0.01
			change(&cfg)
			withKeys(&cfg)
			accepted := 0
			for _, key := range perturb.Keys(cfg) {
				perturb.Each(&cfg, key, texts(), func() {
					c := cfg
					switch key { // another algorithm has other keys
					case "advantage.name":
						c.Advantage.Own = nil
					case "loss.name":
						c.Loss.Options = nil
					}
					if mustTrain(t, key, c) {
						accepted++
					}
				})
			}
			require.Greater(t, accepted, 100)
		})
	}
}

// withKeys puts the keys of the algorithms into a configuration that leaves them at their defaults.
func withKeys(c *Config) {
	if c.Advantage.Own == nil {
		c.Advantage.Own = advantage.Keys(c.Advantage.Name)
	}
	if c.Loss.Options == nil {
		c.Loss.Options = loss.Keys(c.Loss.Name)
	}
}

// cloneKeys is a pointer to a copy of what keys points to.
func cloneKeys(keys any) any {
	c := reflect.New(reflect.TypeOf(keys).Elem())
	c.Elem().Set(reflect.ValueOf(keys).Elem())
	return c.Interface()
}

// The same of several settings at once: with mask_tools off, in all ways in which the policy at the start may be known; and of
// whatever else, at random.
func TestWhatValidateAcceptsTogetherTrainsThePolicy(t *testing.T) {
	t.Parallel()
	refused := 0
	for _, name := range loss.Names() {
		for _, proximal := range []string{ProximalRecompute, loss.ApproximateLogLinear, loss.ApproximateRollout} {
			for _, minibatches := range []int{1, 2} {
				for _, estimator := range []string{"grpo", "optimal_token_baseline", "gae"} {
					cfg := testConfig()
					cfg.MaskTools, cfg.Loss.Name, cfg.Proximal, cfg.Minibatches, cfg.Advantage.Name = false, name, proximal, minibatches, estimator
					if estimator == "gae" {
						cfg.Critic.Network = CriticHead
					}
					what := fmt.Sprintf("mask_tools false, loss %s, proximal %s, %d updates, %s", name, proximal, minibatches, estimator)
					if !mustTrain(t, what, cfg) {
						refused++
						require.ErrorContains(t, cfg.Validate(), "mask_tools: false", what)
					}
				}
			}
		}
	}
	require.Positive(t, refused)
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		cfg, what := testConfig(), ""
		withKeys(&cfg)
		for range 3 {
			keys := perturb.Keys(cfg)
			key := keys[random.IntN(len(keys))]
			var accepted []Config
			perturb.Each(&cfg, key, texts(), func() {
				if cfg.Validate() == nil {
					c := cfg
					c.Advantage.Own, c.Loss.Options = cloneKeys(c.Advantage.Own), cloneKeys(c.Loss.Options)
					accepted = append(accepted, c)
				}
			})
			if len(accepted) > 0 {
				cfg, what = accepted[random.IntN(len(accepted))], what+" "+key
			}
		}
		require.True(t, mustTrain(t, what, cfg))
	}
}
