package learner

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/stats"
)

// smallModel has a critic that values states differently.
func smallModel(t *testing.T, positions int) (*native.Engine, *enginetest.Reference) {
	t.Helper()
	model := gpu.Config{
		ModelType: "llama", VocabSize: vocab, HiddenSize: 16, IntermediateSize: 24, NumLayers: 2, NumHeads: 2, NumKVHeads: 1,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: positions, ValueHead: true,
	}
	engine, err := native.New(model, native.Options{Seed: 3, Threads: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	w, err := engine.Weights(t.Context())
	require.NoError(t, err)
	for _, x := range w.Tensors {
		for i := range x.Data {
			switch x.Name {
			case gpu.ValueHeadTensor:
				x.Data[i] = float32(i%3) - 1
			case "model.embed_tokens.weight":
				x.Data[i] *= 2 // a policy that is not uniform
			}
		}
	}
	enginetest.SetWeights(t, engine, w)
	return engine, enginetest.NewReference(model, w)
}

// The critic's targets of a run, undiscounted, are the reward, and the value of the last state where a rollout would have
// gone on.
func TestARolloutThatTheClockCutOffGoesOnByTheCriticsValue(t *testing.T) {
	t.Parallel()
	turns := [][3]int32{{2, 3, 4}, {3, 2, 5}, {2, 2, 0}}
	var group []*schemas.Trajectory
	for _, stop := range []schemas.StopReason{schemas.StopAnswer, schemas.StopTimeout, schemas.StopTurns, schemas.StopTokens} {
		group = append(group, dialogue(0.5, stop, 1, turns[:2]...))
	}
	whole := dialogue(0.5, schemas.StopTimeout, 1, turns...)
	group = append(group, whole) // as long as the model takes
	engine, reference := smallModel(t, whole.Tokens())
	ended := group[0].Segments[0].Tokens
	mask := make([]uint8, len(ended)+1)
	mask[len(ended)] = 1
	_, _, _, values := reference.Forward(&gpu.Batch{Tokens: append(slices.Clone(ended), 3), Offsets: []int{0, len(mask)}, Mask: mask})
	after := values[len(ended)]
	require.NotZero(t, after)

	for option, want := range map[string][]float64{
		BootstrapNone: {0, 0, 0, 0, 0}, BootstrapTimeout: {0, after, 0, 0, 0}, BootstrapLimits: {0, after, after, after, 0},
	} {
		rows, adv := estimate(t, engine, func(c *Config) {
			choose(c, "gae", func(k *advantage.GAE) { k.Whiten = false })
			c.Advantage.Bootstrap, c.Critic.Network = option, CriticHead
		}, group...)
		for i, more := range want {
			for j := rows.Offsets[i]; j < rows.Offsets[i+1]; j++ {
				if rows.Mask[j] == 1 {
					require.InDelta(t, 0.5+more, adv.Returns[j], 1e-4, "%s, trajectory %d, token %d", option, i, j)
				}
			}
		}
	}
}

// withoutSquares is an engine that does not give the sums of squared probabilities.
type withoutSquares struct{ *native.Engine }

func (e withoutSquares) Evaluate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) error) error {
	return e.Engine.Evaluate(ctx, parts, func(i int, o *gpu.Outputs) error {
		short := *o
		short.ProbSquares = nil
		return each(i, &short)
	})
}

// The baseline of a run weighs by the whole distribution and by how far the policy is from the one that sampled, as the
// loss does.
func TestTheOptimalTokenBaselineOfARunKnowsTheDistribution(t *testing.T) {
	t.Parallel()
	engine, reference := smallModel(t, 32)
	group := []*schemas.Trajectory{
		dialogue(1, schemas.StopAnswer, 1, [3]int32{2, 2, 5}, [3]int32{3, 3, 4}),
		dialogue(0, schemas.StopAnswer, 1, [3]int32{2, 3, 4}, [3]int32{3, 2, 5}, [3]int32{2, 2, 0}),
		dialogue(0.5, schemas.StopAnswer, 1, [3]int32{4, 4, 3}, [3]int32{4, 4, 3}),
	}
	var seen [][]float64
	for _, squares := range []bool{true, false} {
		for _, weight := range []string{"none", "token"} {
			var e gpu.Engine = engine
			if !squares {
				e = withoutSquares{engine}
			}
			rows, adv := estimate(t, e, func(c *Config) {
				c.Advantage.Name = "optimal_token_baseline"
				if weight == "none" {
					c.Loss.Name = "ppo"
				}
				c.Loss.Options = loss.Keys(c.Loss.Name)
				correction := &loss.SharedOf(c.Loss.Options).Correction
				correction.Weight, correction.Cap = weight, 2
			}, group...)
			want := advantage.Batch{
				Offsets: rows.Offsets, Mask: rows.Mask, Rewards: rows.Rewards, Group: rows.Group, Trajectory: rows.Trajectory, Step: rows.Step,
			}
			want.Logprobs, _, want.ProbSquares, _ = reference.Forward(rows.GPU(rows.All()))
			if !squares {
				want.ProbSquares = nil
			}
			if weight == "token" {
				for i, lp := range want.Logprobs {
					rho := math.Exp(lp - rows.Behaviour[i])
					if rho > 5 {
						rho = 0 // decoupled_ppo's rule
					}
					want.Weights = append(want.Weights, min(rho, 2))
				}
			}
			estimator, err := advantage.New("optimal_token_baseline", nil)
			require.NoError(t, err)
			var out advantage.Result
			require.NoError(t, estimator.Estimate(&want, &out))
			require.InDeltaSlice(t, out.Advantages, adv.Advantages, 1e-3, "squares %t, weight %s", squares, weight)
			for _, other := range seen {
				apart := 0.0
				for i, a := range adv.Advantages {
					apart = max(apart, math.Abs(a-other[i]))
				}
				require.Greater(t, apart, 1e-3, "squares %t, weight %s change nothing", squares, weight)
			}
			seen = append(seen, slices.Clone(adv.Advantages))
		}
	}
}

// A run weighs the tokens of an action by the wall-clock of its tool call.
func TestARunWeighsActionsByDuration(t *testing.T) {
	t.Parallel()
	fast, slow := dialogue(1, schemas.StopAnswer, 1, [3]int32{2, 2, 5}), dialogue(0, schemas.StopAnswer, 1, [3]int32{3, 3, 5})
	fast.Turns[0].Calls[0].Duration, slow.Turns[0].Calls[0].Duration = time.Second, 3*time.Second
	for share, want := range map[float64][]float64{1: {0.5, 1.5}, 0.5: {0.75, 1.25}} {
		s := stepBeforeUpdate(t, enginetest.NewBigram(vocab), func(c *Config) { c.Loss.Duration.Share = share }, fast, slow)
		rows := s.rows
		for i, w := range want {
			for j := rows.Offsets[i]; j < rows.Offsets[i+1]; j++ {
				require.InDelta(t, w*float64(rows.Mask[j]), s.before.durations[j], 1e-12)
			}
		}
	}
}

func TestARunNormalizesAdvantagesAsAReaLDoes(t *testing.T) {
	t.Parallel()
	group := []*schemas.Trajectory{
		dialogue(1, schemas.StopAnswer, 1, [3]int32{2, 2, 5}), dialogue(0, schemas.StopAnswer, 1, [3]int32{3, 3, 4}, [3]int32{3, 2, 5}),
	}
	engine, _ := smallModel(t, 32)
	var returns []float64
	for _, mean := range []string{stats.LevelNone, stats.LevelBatch} {
		rows, adv := estimate(t, engine, func(c *Config) {
			c.Advantage.Name, c.Advantage.Normalize.Mean, c.Critic.Network = "dr_grpo", mean, CriticHead
		}, group...)
		if returns == nil {
			returns = slices.Clone(adv.Returns)
		}
		require.Equal(t, returns, adv.Returns, "the critic's targets stay")
		for j, m := range rows.Mask {
			want := returns[j] // 0.5 at two tokens, -0.5 at four
			if mean == stats.LevelBatch {
				want += 1. / 6
			}
			require.InDelta(t, want*float64(m), adv.Advantages[j], 1e-12, mean)
		}
	}
}

// Finding 12a.11: the normalization of advantages takes a group of one episode as one, whether the episode has one context or two.
func TestANewContextChangesNoNormalizedAdvantage(t *testing.T) {
	t.Parallel()
	whole := func() *schemas.Trajectory {
		return dialogue(1, schemas.StopAnswer, 1, [3]int32{2, 3, 4}, [3]int32{3, 2, 5})
	}
	cut := whole()
	s := cut.Segments[0]
	const at = 5 // the second turn begins here
	first, second := s, s
	first.Tokens, first.ActionMask, first.Logprobs, first.Versions = s.Tokens[:at], s.ActionMask[:at], s.Logprobs[:at], s.Versions[:at]
	second.ActionMask, second.Logprobs, second.Versions = slices.Clone(s.ActionMask), slices.Clone(s.Logprobs), slices.Clone(s.Versions)
	for i := range at { // what the agent has seen so far is the second context's prompt
		second.ActionMask[i], second.Logprobs[i], second.Versions[i] = 0, 0, schemas.NoVersion
	}
	cut.Segments = []schemas.Segment{first, second}
	cut.Turns[1].Segment = 1
	for _, n := range []stats.Normalization{
		{Mean: stats.LevelNone, Std: stats.LevelGroup},
		{Mean: stats.LevelGroup, Std: stats.LevelNone, LeaveOneOut: true},
		{Mean: stats.LevelGroup, Std: stats.LevelGroup, Biased: true},
		{Mean: stats.LevelBatch, Std: stats.LevelBatch},
	} {
		normalized := func(group ...*schemas.Trajectory) (sampled []float64) {
			engine, _ := smallModel(t, 64)
			rows, result := estimate(t, engine, func(c *Config) {
				choose(c, "gae", func(k *advantage.GAE) { k.Whiten = false })
				c.Advantage.Normalize, c.Critic.Network = n, CriticHead
			}, group...)
			for token, m := range rows.Mask {
				if m == 1 {
					sampled = append(sampled, result.Advantages[token])
				}
			}
			return sampled
		}
		want := normalized(whole())
		require.Len(t, want, 4)
		require.InDeltaSlice(t, want, normalized(cut), 1e-6, "%+v", n)
	}
}
