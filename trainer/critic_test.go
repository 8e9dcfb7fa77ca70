package trainer

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
)

// Invariant: a critic's warm-up leaves the policy and its optimizer as they were, bit for bit.
func TestInvariantAWarmUpTrainsTheCriticAlone(t *testing.T) {
	t.Parallel()
	for _, network := range []string{learner.CriticHead, learner.CriticOwn} {
		for _, name := range []string{"gae", "gae_step", "bilevel"} {
			t.Run(network+", "+name, func(t *testing.T) {
				t.Parallel()
				make := small(t, 3)
				cfg := testConfig(t.TempDir())
				cfg.Checkpoint.FullEvery = 1
				critical(&cfg, network)
				cfg.Advantage.Name, cfg.BatchGroups, cfg.Eta, cfg.Depth = name, 32, 1, -1
				cfg.Critic.WarmupSteps, cfg.Critic.Optimizer.LearningRate = 12, 0.05
				cfg.Critic.Optimizer.WeightDecay, cfg.Optimizer.WeightDecay, cfg.Optimizer.LearningRate = 0.1, 0.1, 0.01
				w := newWorld(8)
				var explained []float64
				train := func(steps int64) *checkpoint.Checkpoint {
					t.Helper()
					// The run is longer than its warm-up, and is stopped at a step.
					cfg.Steps = 14
					ctx, stop := context.WithCancelCause(t.Context())
					defer stop(nil)
					enough := errors.New("enough steps")
					err := Run(ctx, cfg, Deps{
						Engine: make(network == learner.CriticHead), Stream: w, Prompts: prompts{8},
						NewEngine: func(c gpu.Config) (gpu.Engine, error) {
							return native.New(c, native.Options{Seed: 9, Threads: 1})
						},
						Observer: func(e schemas.Event) {
							if e.Type == schemas.EventStepDone {
								explained = append(explained, e.Metrics["critic/explained_variance"])
								_, trained := e.Metrics["optimizer/grad_norm"]
								require.Equal(t, e.Step > 12, trained, "step %d", e.Step)
								if e.Step == steps && steps < cfg.Steps {
									stop(enough)
								}
							}
						},
					})
					if steps < cfg.Steps {
						require.ErrorIs(t, err, enough)
					} else {
						require.NoError(t, err)
					}
					c, err := checkpoint.Read(checkpoint.StepDir(cfg.Checkpoint.Dir, steps), steps)
					require.NoError(t, err)
					return c
				}
				start := weightsOf(t, make(network == learner.CriticHead))
				train(5) // one that is stopped goes on warming up
				c := train(12)
				warm := weightsIn(t, c.Dir)
				for i, x := range start.Tensors {
					require.Equal(t, x.Name == gpu.ValueHeadTensor, !slices.Equal(x.Data, warm.Tensors[i].Data), x.Name)
				}
				require.Zero(t, c.State.OptimizerSteps)
				moments, err := safetensors.ReadFile(filepath.Join(c.Dir, gpu.OptimizerFile))
				require.NoError(t, err)
				require.Len(t, moments.Tensors, 2*len(start.Tensors))
				for _, m := range moments.Tensors {
					require.Equal(t, gpu.Tensor{Name: m.Name, Shape: m.Shape, Data: slices.Repeat([]float32{0}, len(m.Data))}, m)
				}
				require.Equal(t, network == learner.CriticOwn, c.CriticDir != "")
				var critic *gpu.Weights
				if network == learner.CriticOwn {
					critic = weightsIn(t, c.CriticDir)
				}
				require.Greater(t, explained[11], explained[0]+0.1, "%v", explained)
				for version := range int64(13) {
					require.Equal(t, start.Tensors[0].Data, w.weights[version], "version %d", version)
				}

				after := train(14)
				require.NotEqual(t, warm, weightsIn(t, after.Dir))
				require.EqualValues(t, 14, w.latest)
				if network == learner.CriticOwn {
					require.NotEqual(t, critic, weightsIn(t, after.CriticDir))
				}
			})
		}
	}
}

func TestACriticOfItsOwnStartsFromThePolicyOrAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/model"
	other := small(t, 4)(false)
	start := weightsOf(t, other)
	_, err := other.Export(t.Context(), dir, gpu.ExportOptions{})
	require.NoError(t, err)
	narrow := other.Config()
	narrow.MaxPositions = 7
	short := t.TempDir() + "/model"
	_, err = hf.Export(t.Context(), short, narrow, start.Tensors, gpu.ExportOptions{})
	require.NoError(t, err)

	policy := small(t, 3)(false)
	began := weightsOf(t, policy)
	stop := errors.New("seen enough")
	first := func(folder string) (*gpu.Weights, error) {
		cfg := testConfig(t.TempDir())
		critical(&cfg, learner.CriticOwn)
		cfg.Critic.Folder = folder
		critic := &watched{}
		err := Run(t.Context(), cfg, Deps{Engine: policy, Stream: newWorld(8), Prompts: prompts{8}, NewEngine: func(c gpu.Config) (gpu.Engine, error) {
			e, err := native.New(c, native.Options{Threads: 1})
			*critic = watched{Engine: e, t: t, stop: stop}
			return critic, err
		}})
		return critic.given, err
	}
	for folder, want := range map[string]*gpu.Weights{"": began, dir: start} {
		given, err := first(folder)
		require.ErrorIs(t, err, stop)
		require.Equal(t, want.Tensors, given.Tensors[:len(want.Tensors)])
		require.Equal(t, gpu.Tensor{Name: gpu.ValueHeadTensor, Shape: []int{1, 8}, Data: slices.Repeat([]float32{0}, 8)}, given.Tensors[len(want.Tensors)])
	}
	_, err = first(short)
	require.ErrorContains(t, err, "takes 7 positions, the policy 32")
	_, err = first(dir + "/nowhere")
	require.ErrorContains(t, err, "start the critic")
}

// watched stops the run once it has weights.
type watched struct {
	gpu.Engine
	t     *testing.T
	given *gpu.Weights
	stop  error
}

func (w *watched) Import(ctx context.Context, dir string) error {
	require.NoError(w.t, w.Engine.Import(ctx, dir))
	w.given = weightsOf(w.t, w.Engine)
	return w.stop
}

// weightsOf are a native engine's.
func weightsOf(t *testing.T, e gpu.Engine) *gpu.Weights {
	t.Helper()
	w, err := e.(*native.Engine).Weights(t.Context())
	require.NoError(t, err)
	return w
}

// weightsIn are a folder's.
func weightsIn(t *testing.T, dir string) *gpu.Weights {
	t.Helper()
	m, err := hf.Load(dir)
	require.NoError(t, err)
	return m.Weights
}

func TestACriticThatCannotBeHadIsNamed(t *testing.T) {
	t.Parallel()
	for network, want := range map[string]string{learner.CriticHead: "has no value head", learner.CriticOwn: "there is no engine for it"} {
		cfg := testConfig(t.TempDir())
		critical(&cfg, network)
		err := Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: newWorld(vocab), Prompts: prompts{vocab}})
		require.ErrorContains(t, err, want)
	}
}

func TestAnEngineThatCannotBeMadeIsNamed(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"make the critic":           func(c *Config) { critical(c, learner.CriticOwn) },
		"make the reference policy": func(c *Config) { c.Loss.KL.Coef = 0.1 },
	} {
		cfg := testConfig(t.TempDir())
		change(&cfg)
		err := Run(t.Context(), cfg, Deps{
			Engine: enginetest.NewBigram(vocab), Stream: newWorld(vocab), Prompts: prompts{vocab},
			NewEngine: func(gpu.Config) (gpu.Engine, error) { return native.New(gpu.Config{}, native.Options{}) },
		})
		require.ErrorContains(t, err, want)
	}
}

// small is a native engine whose embeddings are as wide as its vocabulary, so that the world can sample from them: it
// mostly goes to and fro between 0 and 1, and 2 and 3, and stays at the others, so that a state tells of the reward.
func small(t *testing.T, seed uint64) func(head bool) gpu.Engine {
	t.Helper()
	return func(head bool) gpu.Engine {
		e, err := native.New(gpu.Config{
			ModelType: "llama", VocabSize: 8, HiddenSize: 8, IntermediateSize: 12, NumLayers: 1, NumHeads: 2, NumKVHeads: 1,
			RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 32, ValueHead: head,
		}, native.Options{Seed: seed, Threads: 1})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, e.Close()) })
		w, err := e.Weights(t.Context())
		require.NoError(t, err)
		for token, next := range []int{1, 0, 3, 2, 4, 5, 6, 7} {
			w.Tensors[0].Data[token*8+next] = 4
		}
		enginetest.SetWeights(t, e, w)
		return e
	}
}
