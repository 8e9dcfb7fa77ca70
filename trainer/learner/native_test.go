package learner

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/perturb"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/loss"
)

// nativeUpdate takes one step on a fixed batch with the real engine and returns the weights before and after.
func nativeUpdate(t *testing.T, change func(*Config)) (before, after *gpu.Weights) {
	t.Helper()
	before, after, _ = nativeStep(t, change)
	return before, after
}

// nativeStep is nativeUpdate, with what the step measured.
func nativeStep(t *testing.T, change func(*Config)) (before, after *gpu.Weights, measured *Stats) {
	t.Helper()
	model := gpu.Config{
		ModelType: "llama", VocabSize: vocab, HiddenSize: 16, IntermediateSize: 24, NumLayers: 2, NumHeads: 2, NumKVHeads: 1,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 32, ValueHead: true,
	}
	engine, err := native.New(model, native.Options{Seed: 3, Threads: 1})
	require.NoError(t, err)
	defer engine.Close()
	cfg := testConfig()
	cfg.Optimizer.LearningRate, cfg.MicroTokens = 0.01, 1<<20
	cfg.Advantage.Name, cfg.Critic.Network = "gae", CriticHead
	change(&cfg)
	require.NoError(t, cfg.Validate())
	another := func(model gpu.Config) (gpu.Engine, error) {
		return native.New(model, native.Options{Seed: 4, Threads: 1})
	}
	l, err := New(cfg, Deps{Engine: engine, NewEngine: another})
	require.NoError(t, err)
	defer l.Close()
	if l.critic.isNetwork() {
		l.critic.engine, err = another(model)
		require.NoError(t, err)
	}
	if l.NeedsReference() {
		other, err := another(model)
		require.NoError(t, err)
		defer other.Close()
		dir := t.TempDir()
		_, err = other.Export(t.Context(), dir, gpu.ExportOptions{})
		require.NoError(t, err)
		require.NoError(t, l.OpenReference(func(reference gpu.Engine) error { return reference.Import(t.Context(), dir) }))
	}
	b := &batch.Batch{}
	for g := range uint64(cfg.BatchGroups) {
		group := batch.Taken{}
		for s := range 4 {
			ticket := &schemas.Ticket{Cursor: g, Sample: s, Seed: batch.Seed(1, g, 0, s), Sampling: schemas.Sampling{Temperature: 1}}
			sampled := enginetest.BigramRollout(enginetest.NewBigram(vocab).Table, vocab, ticket, 0)
			group.Members = append(group.Members, batch.Member{Trajectory: sampled, Reward: sampled.Reward})
		}
		b.Groups = append(b.Groups, group)
	}
	before, err = engine.Weights(t.Context())
	require.NoError(t, err)
	measured, err = l.Learn(t.Context(), b)
	require.NoError(t, err)
	after, err = engine.Weights(t.Context())
	require.NoError(t, err)
	return before, after, measured
}

// Defect P11: drop_rejected did nothing in a run.
func TestDropRejectedMagnifiesWhatIsLeft(t *testing.T) {
	t.Parallel()
	for _, tokens := range []int{7, 1 << 20} {
		step := map[bool]float64{}
		for _, drop := range []bool{false, true} {
			before, after, measured := nativeStep(t, func(c *Config) {
				c.MicroTokens, c.Minibatches, c.Loss.Value.Coef = tokens, 1, 1e-9
				c.Optimizer.LearningRate, c.Optimizer.Epsilon, c.Optimizer.ClipNorm = 10, 100, 0 // a step in proportion to the gradient
				correct(c, c.Loss.Name, loss.Correction{Weight: loss.WeightToken, Rules: []string{"mask token ratio 0.7 1.4"}, DropRejected: drop})
			})
			rejected := measured.losses["rejected"]
			require.Positive(t, rejected.Sum)
			step[drop] = distance(before, after)
			if drop {
				require.InEpsilon(t, 1/(1-rejected.Value()), step[true]/step[false], 1e-2, "%d tokens a micro-batch", tokens)
			}
		}
	}
}

// Defect S13: with mask_tools off, the distance of the policies was measured before tool tokens had a behaviour.
func TestToolTokensDoNotCountAsOffPolicy(t *testing.T) {
	t.Parallel()
	sums := map[bool]float64{}
	for _, mask := range []bool{true, false} {
		_, _, measured := nativeStep(t, func(c *Config) { c.MaskTools = mask })
		sums[mask] = measured.offPolicy["k3_kl"] * measured.losses["approx_kl"].Count
	}
	require.Positive(t, sums[true])
	require.InDelta(t, sums[true], sums[false], 1e-6, "the sum over tokens: tool tokens add nothing")
}

func TestACriticIsTrainedWithThePolicy(t *testing.T) {
	t.Parallel()
	before, after := nativeUpdate(t, func(*Config) {})
	for i, was := range before.Tensors {
		require.NotEqual(t, was.Data, after.Tensors[i].Data, "%s was not trained", was.Name)
	}
}

// Invariant: splitting a minibatch into micro-batches changes nothing but rounding: denominators, and whatever the loss
// chooses or normalizes among tokens, are the minibatch's.
//
// Defects P11 and P12: clip_cov, kl_cov, m2po and normalize depended on micro_tokens, and drop_rejected did nothing.
func TestInvariantSplittingAMinibatchChangesNothingButRounding(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*Config){
		"normalize": func(c *Config) {
			correct(c, c.Loss.Name, loss.Correction{Weight: loss.WeightToken, Normalize: true, LogBound: 20})
		},
		"normalize by row": func(c *Config) {
			correct(c, c.Loss.Name, loss.Correction{Weight: loss.WeightSequence, Normalize: true, LogBound: 20})
		},
		"normalize current": func(c *Config) {
			correct(c, c.Loss.Name, loss.Correction{Of: loss.OfCurrent, Weight: loss.WeightToken, Normalize: true, LogBound: 20})
		},
		"m2 of a loss against behaviour": func(c *Config) {
			correct(c, "reinforce", loss.Correction{M2Threshold: 0.04})
		},
		"the critic at every token": func(c *Config) { c.Advantage.Tokens = TokensAll },
		"the policy at every token": func(c *Config) {
			c.MaskTools, c.Advantage.Tokens = false, TokensSampled
			c.Loss.Value.Aggregation.Mode = loss.SeqMeanTokenMean
		},
		"m2 of one optimizer step": func(c *Config) { c.Loss.Name, c.Minibatches = "m2po", 1 },
		"approximated":             func(c *Config) { c.Loss.Name, c.Proximal = "m2po", loss.ApproximateLogLinear },
	}
	for _, name := range loss.Names() {
		cases[name] = func(c *Config) {
			c.Loss.Name, c.Loss.Options = name, loss.Keys(name)
			perturb.Overlay(c.Loss.Options, struct{ CovRatio, CovLow, CovHigh float64 }{0.2, -1e9, 1e9}, false)
			c.Loss.KL.Coef = 0.1
		}
	}
	for _, mode := range []string{loss.TokenMean, loss.SeqMeanTokenSum, loss.SeqMeanTokenMean, loss.SeqMeanTokenSumNorm} {
		for _, of := range []string{loss.OfProximal, loss.OfCurrent} {
			cases["drop_rejected "+mode+" "+of] = func(c *Config) {
				correct(c, c.Loss.Name, loss.Correction{Of: of, Weight: loss.WeightToken, Rules: []string{"mask token ratio 0.7 1.4"}, DropRejected: true})
				loss.SharedOf(c.Loss.Options).Aggregation = loss.Aggregation{Mode: mode, Length: 7, CountEmptyRows: of == loss.OfCurrent}
			}
		}
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want *gpu.Weights
			for _, tokens := range []int{1 << 20, 40, 7} {
				before, got := nativeUpdate(t, func(c *Config) {
					change(c)
					// A step proportional to the gradient, so that rounding is not blown up to the size of a step.
					c.MicroTokens, c.Optimizer.Epsilon, c.Optimizer.ClipNorm = tokens, 1, 0
				})
				if want == nil {
					want = got
					require.Positive(t, distance(before, want), "nothing was trained")
					continue
				}
				require.Less(t, distance(want, got), 1e-4*distance(before, want), "%d tokens a micro-batch", tokens)
			}
		})
	}
}

// distance is the root of the sum of squared differences.
func distance(a, b *gpu.Weights) float64 {
	sum := 0.0
	for i, x := range a.Tensors {
		for k, v := range x.Data {
			d := float64(v - b.Tensors[i].Data[k])
			sum += d * d
		}
	}
	return math.Sqrt(sum)
}
