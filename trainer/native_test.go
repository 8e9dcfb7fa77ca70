package trainer

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
)

// nativeUpdate takes one step on a fixed batch with the real engine and returns the weights before and after.
func nativeUpdate(t *testing.T, change func(*Config)) (before, after *gpu.Weights) {
	t.Helper()
	model := gpu.Config{
		ModelType: "llama", VocabSize: vocab, HiddenSize: 16, IntermediateSize: 24, NumLayers: 2, NumHeads: 2, NumKVHeads: 1,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 32, ValueHead: true,
	}
	engine, err := native.New(model, native.Options{Seed: 3, Threads: 1})
	require.NoError(t, err)
	defer engine.Close()
	cfg := testConfig(t.TempDir())
	cfg.Optimizer.LearningRate, cfg.MicroTokens = 0.01, 1<<20
	cfg.Advantage.Name, cfg.Critic.Network = "gae", CriticHead
	change(&cfg)
	require.NoError(t, cfg.Validate())
	deps, err := Deps{Engine: engine, Stream: newWorld(vocab), Prompts: prompts{vocab}}.withDefaults()
	require.NoError(t, err)
	tr := &trainer{cfg: cfg, deps: deps, random: rand.NewPCG(1, 2), now: newMeasures(time.Time{})}
	require.NoError(t, tr.chooseLoss())
	require.NoError(t, tr.chooseAdvantage())
	require.NoError(t, tr.chooseCritic())

	w := newWorld(vocab)
	w.weights[0] = newBigram(vocab).table
	b := &batch.Batch{}
	for g := range uint64(cfg.BatchGroups) {
		group := batch.Taken{}
		for s := range cfg.GroupSize {
			sampled := w.sample(&schemas.Ticket{Cursor: g, Sample: s, Seed: ticketSeed(1, g, 0, s), Sampling: schemas.Sampling{Temperature: 1}}, 0)
			group.Members = append(group.Members, batch.Member{Trajectory: sampled, Reward: sampled.Reward})
		}
		b.Groups = append(b.Groups, group)
	}
	before, err = engine.Weights(t.Context())
	require.NoError(t, err)
	rows := tr.rows(b)
	old, err := tr.oldPolicy(t.Context(), rows)
	require.NoError(t, err)
	adv, err := tr.advantages(rows, old)
	require.NoError(t, err)
	require.NoError(t, tr.update(t.Context(), rows, old, adv))
	after, err = engine.Weights(t.Context())
	require.NoError(t, err)
	return before, after
}

func TestACriticIsTrainedWithThePolicy(t *testing.T) {
	t.Parallel()
	before, after := nativeUpdate(t, func(*Config) {})
	for i, was := range before.Tensors {
		require.NotEqual(t, was.Data, after.Tensors[i].Data, "%s was not trained", was.Name)
	}
}

// Invariant: splitting a minibatch into micro-batches changes nothing but rounding: denominators are the
// minibatch's.
func TestInvariantSplittingAMinibatchChangesNothingButRounding(t *testing.T) {
	t.Parallel()
	for _, aggregation := range []string{"token-mean", "seq-mean-token-sum", "seq-mean-token-mean"} {
		t.Run(aggregation, func(t *testing.T) {
			t.Parallel()
			var want *gpu.Weights
			for _, tokens := range []int{1 << 20, 40, 7, 1} {
				_, got := nativeUpdate(t, func(c *Config) {
					c.MicroTokens, c.Loss.Options.Aggregation.Mode = tokens, aggregation
					// A step proportional to the gradient, so that rounding is not blown up to the size of a step.
					c.Optimizer.Epsilon = 1
				})
				if want == nil {
					want = got
					continue
				}
				for i, x := range want.Tensors {
					require.InDeltaSlice(t, x.Data, got.Tensors[i].Data, 1e-6, "%s, %d tokens", x.Name, tokens)
				}
			}
		})
	}
}
