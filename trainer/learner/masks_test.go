package learner

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/stats"
)

// masks are the settings of the two masks: which tokens the policy is trained on, and which ones advantages are estimated over.
type masks struct {
	tools  bool
	tokens string
}

// everyMasks are all settings of the two.
func everyMasks() []masks {
	var all []masks
	for _, tools := range []bool{true, false} {
		for _, tokens := range []string{TokensTrained, TokensSampled, TokensAll} {
			all = append(all, masks{tools, tokens})
		}
	}
	return all
}

// set sets them.
func (m masks) set(c *Config) { c.MaskTools, c.Advantage.Tokens = m.tools, m.tokens }

// trainsOn and credits report whether token at of a segment is one of theirs: of all tokens but the first, those that were sampled or all.
func (m masks) trainsOn(s *schemas.Segment, at int) bool {
	return at > 0 && (!m.tools || s.ActionMask[at] == 1)
}

func (m masks) credits(s *schemas.Segment, at int) bool {
	all := m.tokens == TokensAll || m.tokens == TokensTrained && !m.tools
	return at > 0 && (all || s.ActionMask[at] == 1)
}

// naiveGAE is generalized advantage estimation of one segment over the tokens that count, with the outcome at its last sampled token, as
// the paper's sum A_t = sum_k (gamma lambda)^k delta_{t+k}.
func naiveGAE(
	s *schemas.Segment, reward, gamma, lambda float64, values []float64, counts func(at int) bool,
) (advantages, returns []float64) {
	advantages, returns = make([]float64, len(s.Tokens)), make([]float64, len(s.Tokens))
	outcome := 0
	var at []int
	for k, sampled := range s.ActionMask {
		if sampled == 1 {
			outcome = k
		}
		if counts(k) {
			at = append(at, k)
		}
	}
	surprise := make([]float64, len(at))
	for i, k := range at {
		surprise[i] = -values[k]
		if k == outcome {
			surprise[i] += reward
		}
		if i+1 < len(at) {
			surprise[i] += gamma * values[at[i+1]]
		}
	}
	for i, k := range at {
		for j := i; j < len(at); j++ {
			advantages[k] += math.Pow(gamma*lambda, float64(j-i)) * surprise[j]
		}
		returns[k] = advantages[k] + values[k]
	}
	return advantages, returns
}

// centreNaively brings the entries that count to mean 0 and returns how many they are.
func centreNaively(x []float64, counts []bool) (n float64) {
	sum := 0.0
	for i, on := range counts {
		if on {
			n, sum = n+1, sum+x[i]
		}
	}
	for i, on := range counts {
		if on {
			x[i] -= sum / n
		}
	}
	return n
}

// whitenNaively brings the entries that count to mean 0 and variance 1.
func whitenNaively(x []float64, counts []bool) {
	n, squares := centreNaively(x, counts), 0.0
	for i, on := range counts {
		if on {
			squares += x[i] * x[i]
		}
	}
	for i, on := range counts {
		if on {
			x[i] /= math.Sqrt(squares/(n-1) + 1e-8)
		}
	}
}

// Under each setting of the two masks, a step of a run has the advantages and the critic's targets of a naive model at the tokens that are
// credited and 0 elsewhere, and is trained on the tokens that the loss's mask has.
func TestPropertyTheTwoMasksOfAStepAreThoseOfANaiveModel(t *testing.T) {
	t.Parallel()
	engine, reference := smallModel(t, 32)
	rapid.Check(t, func(r *rapid.T) {
		gamma, lambda := rapid.Float64Range(0.5, 1).Draw(r, "gamma"), rapid.Float64Range(0, 1).Draw(r, "lambda")
		whiten := rapid.Bool().Draw(r, "whiten")
		token := rapid.Int32Range(0, vocab-1)
		var group []*schemas.Trajectory
		for range rapid.IntRange(1, 3).Draw(r, "trajectories") {
			var turns [][3]int32
			for range rapid.IntRange(1, 4).Draw(r, "turns") {
				turns = append(turns, [3]int32{token.Draw(r, "a"), token.Draw(r, "b"), token.Draw(r, "tool")})
			}
			group = append(group, dialogue(rapid.Float64Range(-1, 1).Draw(r, "reward"), schemas.StopAnswer, token.Draw(r, "prompt"), turns...))
		}
		m := rapid.SampledFrom(everyMasks()).Draw(r, "masks")

		var advantages, returns []float64
		var trained, credited []bool
		for _, x := range group {
			s := &x.Segments[0]
			all := slices.Repeat([]uint8{1}, len(s.Tokens))
			all[0] = 0
			_, _, _, values := reference.Forward(&gpu.Batch{Tokens: s.Tokens, Offsets: []int{0, len(all)}, Mask: all})
			a, g := naiveGAE(s, x.Reward, gamma, lambda, values, func(at int) bool { return m.credits(s, at) })
			advantages, returns = append(advantages, a...), append(returns, g...)
			for at := range s.Tokens {
				trained, credited = append(trained, m.trainsOn(s, at)), append(credited, m.credits(s, at))
			}
		}
		on := make([]uint8, len(credited))
		for at, c := range credited {
			if c {
				on[at] = 1
			}
		}
		normalize := rapid.SampledFrom([]string{stats.LevelNone, stats.LevelBatch}).Draw(r, "normalize")
		if whiten {
			whitenNaively(advantages, credited)
		}
		if normalize == stats.LevelBatch {
			centreNaively(advantages, credited)
		}
		got := stepBeforeUpdate(t, engine, func(c *Config) {
			choose(c, "gae", func(k *advantage.GAE) { k.Whiten, k.Gamma, k.Lambda = whiten, gamma, lambda })
			c.Critic.Network, c.Advantage.Normalize.Mean = CriticHead, normalize
			m.set(c)
		}, group...)
		require.InDelta(r, explainedVariance(got.before.values, got.result.Returns, on), *got.stats.explained, 1e-12)
		require.InDeltaSlice(r, advantages, got.result.Advantages, 1e-3, "%+v", m)
		require.InDeltaSlice(r, returns, got.result.Returns, 1e-4, "%+v", m)
		for at, on := range trained {
			require.Equal(r, on, got.rows.Mask[at] == 1, "%+v, token %d", m, at)
			if on { // what the loss reads is there
				require.Negative(r, got.before.logprobs[at], "%+v, token %d", m, at)
			}
		}
	})
}

// A key that is not set, and the same said in words, are the same step to the bit.
func TestTheAdvantagesTokensFollowTheLosses(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]masks{
		{{true, TokensTrained}, {true, TokensSampled}},
		{{false, TokensTrained}, {false, TokensAll}},
	} {
		var after [2]*gpu.Weights
		for i, m := range same {
			_, after[i], _ = nativeStep(t, m.set)
		}
		require.Equal(t, after[0], after[1], "%+v", same)
	}
}

// The critic learns at the tokens that advantages are estimated over, the policy at those of mask_tools, whether the critic is a head or a
// network of its own.
func TestTheCriticLearnsWhereAdvantagesAreEstimated(t *testing.T) {
	t.Parallel()
	var sampled, all float64
	for i, m := range []masks{{true, TokensSampled}, {false, TokensAll}} {
		_, _, got := nativeStep(t, m.set)
		*[]*float64{&sampled, &all}[i] = got.losses["approx_kl"].Count
	}
	require.Positive(t, sampled)
	require.Greater(t, all, sampled)
	for _, m := range everyMasks() {
		for _, network := range []string{CriticHead, CriticOwn} {
			_, _, got := nativeStep(t, func(c *Config) {
				m.set(c)
				c.Critic.Network = network
			})
			policy, critic := sampled, sampled
			if !m.tools {
				policy = all
			}
			if m.tokens == TokensAll || m.tokens == TokensTrained && !m.tools {
				critic = all
			}
			require.InDelta(t, policy, got.losses["approx_kl"].Count, 0, "%+v, %s", m, network)
			require.InDelta(t, critic, got.losses["value_loss"].Count, 0, "%+v, %s", m, network)
		}
	}
}

// With the loss's mask off alone, the output of tools has advantage 0: it pulls the policy nowhere, and only counts in the mean over
// tokens.
func TestTokensWithoutAnAdvantageCountInTheMeanAlone(t *testing.T) {
	t.Parallel()
	steps, counts := [2]float64{}, [2]float64{}
	for i, tools := range []bool{true, false} {
		before, after, got := nativeStep(t, func(c *Config) {
			c.MaskTools, c.Advantage.Tokens = tools, TokensSampled
			c.Minibatches, c.Loss.Value.Coef = 1, 1e-9
			c.Optimizer.LearningRate, c.Optimizer.Epsilon, c.Optimizer.ClipNorm = 10, 100, 0 // a step in proportion to the gradient
		})
		steps[i], counts[i] = distance(before, after), got.losses["approx_kl"].Count
	}
	require.InEpsilon(t, counts[0]/counts[1], steps[1]/steps[0], 1e-2)
}

// GRPO gives every token of a trajectory the same advantage: which tokens it runs over changes nothing at the tokens that were sampled.
func TestGRPOOverTheOutputOfToolsIsTheSame(t *testing.T) {
	t.Parallel()
	after := map[string]*gpu.Weights{}
	for _, tokens := range []string{TokensSampled, TokensAll} {
		_, after[tokens] = nativeUpdate(t, func(c *Config) {
			c.Advantage.Name, c.Critic.Network, c.Advantage.Tokens = "grpo", CriticNone, tokens
		})
	}
	require.Equal(t, after[TokensSampled], after[TokensAll])
}

// The optimal token baseline reads what no policy sampled as weighed by 1, as where both masks are off.
func TestTokensOfToolsHaveNoImportance(t *testing.T) {
	t.Parallel()
	engine, _ := smallModel(t, 32)
	group := []*schemas.Trajectory{
		dialogue(1, schemas.StopAnswer, 1, [3]int32{2, 2, 5}, [3]int32{3, 3, 4}),
		dialogue(0, schemas.StopAnswer, 1, [3]int32{2, 3, 4}, [3]int32{3, 2, 5}),
	}
	var got [2]*step
	for i, tools := range []bool{true, false} {
		got[i] = stepBeforeUpdate(t, engine, func(c *Config) {
			c.Advantage.Name, c.MaskTools, c.Advantage.Tokens = "optimal_token_baseline", tools, TokensAll
			correct(c, c.Loss.Name, loss.Correction{Weight: loss.WeightToken})
		}, group...)
	}
	for at, sampled := range got[0].rows.Mask {
		if sampled == 1 || got[1].rows.Mask[at] == 1 {
			require.InDelta(t, got[1].before.importance[at], got[0].before.importance[at], 1e-9, "token %d", at)
		}
	}
	require.InDeltaSlice(t, got[1].result.Advantages, got[0].result.Advantages, 1e-6)
}

// Silenced trajectories teach neither the policy nor the critic.
func TestSilencedTrajectoriesTeachNoCritic(t *testing.T) {
	t.Parallel()
	count := func(mask bool) float64 {
		cfg := testConfig()
		cfg.Advantage.Name, cfg.Critic.Network, cfg.Advantage.Tokens = "gae", CriticHead, TokensAll
		cfg.Selection.Overlong.Mask = mask
		require.NoError(t, cfg.Validate())
		engine, _ := smallModel(t, 32)
		l, err := New(cfg, Deps{Engine: engine})
		require.NoError(t, err)
		got, err := l.Learn(t.Context(), batchOf(
			dialogue(1, schemas.StopAnswer, 1, [3]int32{2, 2, 5}), dialogue(0, schemas.StopTokens, 1, [3]int32{2, 3, 4}, [3]int32{3, 2, 5})))
		require.NoError(t, err)
		return got.losses["value_loss"].Count
	}
	s := stepBeforeUpdate(t, enginetest.NewBigram(vocab), func(c *Config) { c.Advantage.Tokens = TokensAll },
		dialogue(1, schemas.StopAnswer, 1, [3]int32{2, 2, 5}))
	m := s.newMinibatch(s.rows.All(), 3)
	require.Equal(t, loss.Counts{Tokens: 2, Rows: 1, Empty: 3}, m.counts)
	require.Equal(t, loss.Counts{Tokens: 4, Rows: 1, Empty: 3}, m.valueCounts, "rows that are silenced count in both means")
	require.InDelta(t, 4+7, count(false), 0)
	require.InDelta(t, 4, count(true), 0)
}

// What cannot run over the output of tools is refused under the key that has it run there.
//
// Finding: with mask_tools off, prime_rloo, bilevel and normalize_process took the outcome of a trajectory that ends with a tool's output
// for a process reward, or counted it twice.
func TestWhatCannotRunOverTheOutputOfToolsIsRefused(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*Config){
		"advantage gigpo":             func(c *Config) { c.Advantage.Name = "gigpo" },
		"advantage prime_rloo":        func(c *Config) { c.Advantage.Name = "prime_rloo" },
		"advantage bilevel":           func(c *Config) { choose(c, "bilevel", func(k *advantage.Bilevel) { k.TokenCredit = advantage.ByGAE }) },
		"advantage.normalize_process": func(c *Config) { c.Advantage.NormalizeProcess = true },
	} {
		for _, m := range everyMasks() {
			cfg := testConfig()
			change(&cfg)
			cfg.Critic.Network = CriticHead
			m.set(&cfg)
			switch err := cfg.Validate(); {
			case m.tokens == TokensAll:
				require.ErrorContains(t, err, fmt.Sprintf("advantage.tokens: %s: %s", TokensAll, what), "%+v", m)
			case m.tokens == TokensTrained && !m.tools:
				require.ErrorContains(t, err, "mask_tools: false: "+what, "%+v", m)
			default:
				require.NoError(t, err, "%s, %+v", what, m)
			}
		}
	}
}

// Every setting of the two masks trains on the engine in Go, with every estimator that Validate lets run so.
func TestEveryEstimatorTrainsUnderEverySettingOfTheMasks(t *testing.T) {
	t.Parallel()
	trained := 0
	for _, name := range advantage.Names() {
		for _, m := range everyMasks() {
			cfg := testConfig()
			cfg.Advantage.Name = name
			m.set(&cfg)
			if slices.Contains(cfg.Advantage.Facts().Requires, "Values") {
				cfg.Critic.Network = CriticHead
			}
			if mustTrain(t, fmt.Sprintf("%s, %+v", name, m), cfg) {
				trained++
			}
		}
	}
	require.Greater(t, trained, 80)
}
