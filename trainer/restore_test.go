package trainer

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
)

var errEnough = errors.New("enough steps")

// runUntil trains until a step is done, and stops as a killed process does: without a last checkpoint.
func (r *nativeRun) runUntil(t *testing.T, step int64) error {
	t.Helper()
	return r.runUnder(t, step, nil, nil)
}

func (r *nativeRun) runUnder(t *testing.T, step int64, settings map[string]string, before func(map[string]string) (learner.Config, error)) error {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	engine := r.newEngine(t, 3)
	if r.wrap != nil {
		engine = r.wrap(engine)
	}
	err := Run(ctx, r.cfg, Deps{
		Engine: engine, Stream: r.w, Prompts: prompts{8}, NewEngine: newWhole, Settings: settings, LearnerOf: before,
		Observer: func(e schemas.Event) {
			if e.Type == schemas.EventStepDone && e.Step == step && step < r.cfg.Steps {
				stop(errEnough)
			}
		},
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// trainUntil is runUntil under settings.
func (r *nativeRun) trainUntil(t *testing.T, step int64, settings map[string]string, before func(map[string]string) (learner.Config, error)) {
	t.Helper()
	require.NoError(t, r.runUnder(t, step, settings, before))
}

// Invariant: a start from a light checkpoint goes on with the weights, the optimizer and the random state that the run had.
func TestInvariantAStartFromALightCheckpointGoesOnTheSame(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*nativeRun){
		"grpo, a reference":        func(r *nativeRun) { r.cfg.Loss.KL.Coef = 0.1 },
		"ppo, a value head":        func(r *nativeRun) { critical(&r.cfg, learner.CriticHead) },
		"ppo, a critic of its own": func(r *nativeRun) { critical(&r.cfg, learner.CriticOwn); r.cfg.Eta, r.cfg.Depth, r.w.lag = 2, -1, 2 },
		"rae":                      func(r *nativeRun) { r.cfg.Advantage.Name = "rae" },
		"a part that adapts": func(r *nativeRun) {
			r.cfg.Loss.KL.Coef, r.cfg.Loss.KL.In, r.cfg.Loss.KL.Target, r.cfg.Loss.KL.Horizon = 0.1, "reward", 1e-4, 1000
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[bool]map[string]string{}
			for _, stopped := range []bool{false, true} {
				r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8)}
				r.cfg.Steps, r.cfg.Optimizer.LearningRate, r.cfg.Optimizer.Schedule = 7, 0.02, "cosine"
				change(r)
				if stopped {
					r.trainUntil(t, 3, nil, nil)
					fulls, err := checkpoint.FullSteps(r.cfg.Checkpoint.Dir)
					require.NoError(t, err)
					require.Equal(t, []int64{0}, fulls, "weights and optimizer are three steps behind")
					r.trainUntil(t, 5, nil, nil)
					fulls, err = checkpoint.FullSteps(r.cfg.Checkpoint.Dir)
					require.NoError(t, err)
					require.Equal(t, []int64{3, 0}, fulls, "the start has made the newest a full one")
				} else {
					r.cfg.Checkpoint.FullEvery = 1
				}
				r.trainUntil(t, 7, nil, nil)
				records := audit(t, r.cfg, r.w)
				files[stopped] = records[7].Result.Files
				require.NotEmpty(t, files[stopped])
			}
			require.Equal(t, files[false], files[true])
		})
	}
}

// Steps that were trained under other settings are learnt again under those.
func TestStepsAreLearntAgainUnderTheirOwnSettings(t *testing.T) {
	t.Parallel()
	files := map[bool]map[string]string{}
	for _, light := range []bool{false, true} {
		r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8)}
		r.cfg.Steps, r.cfg.Optimizer.LearningRate = 6, 0.02
		if !light {
			r.cfg.Checkpoint.FullEvery = 1
		}
		old := r.cfg.Config
		settings := map[string]string{"trainer.optimizer.learning_rate": "0.02"}
		r.trainUntil(t, 3, settings, nil)
		r.cfg.Optimizer.LearningRate = 0.05
		asked := 0
		r.trainUntil(t, 6, map[string]string{"trainer.optimizer.learning_rate": "0.05"}, func(s map[string]string) (learner.Config, error) {
			require.True(t, maps.Equal(settings, s))
			asked++
			return old, nil
		})
		require.Equal(t, light, asked > 0)
		files[light] = audit(t, r.cfg, r.w)[6].Result.Files
	}
	require.Equal(t, files[false], files[true])
}

// Steps that come out otherwise when they are learnt again, as on a processor of another kind, take the place of no checkpoint: where their
// version is published the start is refused, and the run goes on where it was trained. The other weights took the place of the light
// checkpoint, and the run could not go on anywhere.
func TestStepsThatComeOutOtherwiseTakeTheirCheckpointsPlaceNowhere(t *testing.T) {
	t.Parallel()
	r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8)}
	r.cfg.Steps, r.cfg.Optimizer.LearningRate = 6, 0.02
	r.trainUntil(t, 3, nil, nil)
	elsewhere := r.cfg
	elsewhere.Optimizer.LearningRate = 0.021 // nothing says so: it stands for other rounding
	err := Run(t.Context(), elsewhere, Deps{Engine: r.newEngine(t, 3), Stream: r.w, Prompts: prompts{8}, NewEngine: newWhole})
	require.ErrorIs(t, err, ErrAbandoned)
	require.ErrorContains(t, err, "the steps 1 to 3 were learnt again from their batches and came out otherwise")
	require.ErrorContains(t, err, "--model.folder "+checkpoint.StepDir(r.cfg.Checkpoint.Dir, 0)+" ")
	fulls, err := checkpoint.FullSteps(r.cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Equal(t, []int64{0}, fulls)
	r.trainUntil(t, 6, nil, nil)
	audit(t, r.cfg, r.w)
}

// A light checkpoint whose batch is gone is named and passed over, and nothing is trained on twice.
func TestALightCheckpointWithoutItsBatchIsPassedOver(t *testing.T) {
	t.Parallel()
	r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8)}
	r.cfg.Steps, r.cfg.Optimizer.LearningRate = 6, 0.02
	r.trainUntil(t, 4, nil, nil)
	require.NoError(t, os.Remove(filepath.Join(r.cfg.Checkpoint.Dir, "batches", "step_000004.zst")))
	// Version 4 is published, and step 4 comes out the same: from the checkpoint of step 3 the stream has what it needs.
	r.trainUntil(t, 6, nil, nil)
	audit(t, r.cfg, r.w)
}

// inexact is an engine that comes out a little otherwise each time.
type inexact struct {
	gpu.Engine
	off  float64
	made *int
}

func (e *inexact) Limits() gpu.Limits {
	l := e.Engine.Limits()
	l.Repeats = false
	return l
}

func (e *inexact) Step(ctx context.Context, o gpu.StepOptions) (gpu.StepStats, error) {
	*e.made++
	o.LearningRate *= 1 + e.off*float64(*e.made)
	return e.Engine.Step(ctx, o)
}

// Invariant: a version that was published stays what it is.
func TestInvariantAPublishedVersionStaysWhatItIs(t *testing.T) {
	t.Parallel()
	for _, dtype := range []string{"float32", "bfloat16"} {
		t.Run(dtype, func(t *testing.T) {
			t.Parallel()
			r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8)}
			r.cfg.Steps, r.cfg.Optimizer.LearningRate, r.cfg.Publish.DType = 7, 0.02, dtype
			r.cfg.Checkpoint.MaxDrift = 0.2
			made := 0
			start := func(step int64, off float64) error {
				r.wrap = func(e gpu.Engine) gpu.Engine { return &inexact{e, off, &made} }
				return r.runUntil(t, step)
			}
			require.NoError(t, start(3, 0.003))
			fulls, err := checkpoint.FullSteps(r.cfg.Checkpoint.Dir)
			require.NoError(t, err)
			require.Equal(t, []int64{0}, fulls)

			// What comes out elsewhere is named, and the run stays as it is.
			require.ErrorContains(t, start(5, 1), "trainer.checkpoint.max_drift is 0.2")
			fulls, err = checkpoint.FullSteps(r.cfg.Checkpoint.Dir)
			require.NoError(t, err)
			require.Equal(t, []int64{0}, fulls)

			// The world refuses other weights under the number of a published version.
			require.NoError(t, start(5, 0.003))
			saved, err := safetensors.ReadFile(filepath.Join(checkpoint.StepDir(r.cfg.Checkpoint.Dir, 3), gpu.WeightsFile))
			require.NoError(t, err)
			as := safetensors.F32
			if dtype == "bfloat16" {
				as = safetensors.BF16
			}
			for i, x := range saved.Tensors[0].Data {
				require.Equal(t, r.w.weights[3][i], as.Round(x))
			}
			require.NoError(t, start(7, 0.003))
			records := audit(t, r.cfg, r.w)
			require.Nil(t, records[2].Drift)
			require.Nil(t, records[4].Drift)
			require.Nil(t, records[7].Drift)
			for step, from := range map[int]int64{3: 0, 5: 3} {
				d := records[step].Drift
				require.NotNil(t, d, step)
				require.Equal(t, from, d.From)
				require.Positive(t, d.Share)
				require.Less(t, d.Share, 0.2)
				require.Positive(t, d.Changed)
			}
		})
	}
}

// A version that was not published before the stop is what was learnt again, and published so.
func TestAVersionThatWasNotPublishedIsTheOneLearntAgain(t *testing.T) {
	t.Parallel()
	r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8)}
	r.cfg.Steps, r.cfg.Optimizer.LearningRate = 5, 0.02
	r.cfg.Checkpoint.MaxDrift = 0.2
	made := 0
	r.wrap = func(e gpu.Engine) gpu.Engine { return &inexact{e, 0.003, &made} }
	published := 0
	r.w.crash = func(point string) error {
		if point == "before publish" {
			if published++; published == 4 {
				return errCrash
			}
		}
		return nil
	}
	require.ErrorIs(t, r.runUntil(t, 5), errCrash)
	require.NotContains(t, r.w.names, int64(3))
	require.NoError(t, r.runUntil(t, 5))
	require.Nil(t, audit(t, r.cfg, r.w)[3].Drift)
	require.Contains(t, r.w.names, int64(3))
}

// inexactAdapters is inexact with adapters.
type inexactAdapters struct{ inexact }

func (e *inexactAdapters) Adapts() bool { return true }

// Adapters have full checkpoints alone where the engine does not repeat to the bit, and so has every policy with a bound of 0.
func TestAdaptersThatDoNotRepeatHaveFullCheckpoints(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		drift float64
		wrap  func(gpu.Engine) gpu.Engine
		want  []int64
	}{
		"repeats":                     {0, nil, []int64{0}},
		"does not repeat":             {0.2, func(e gpu.Engine) gpu.Engine { return &inexact{e, 0, new(int)} }, []int64{0}},
		"does not repeat, no bound":   {0, func(e gpu.Engine) gpu.Engine { return &inexact{e, 0, new(int)} }, []int64{3, 2, 0}},
		"does not repeat, and adapts": {0.2, func(e gpu.Engine) gpu.Engine { return &inexactAdapters{inexact{e, 0, new(int)}} }, []int64{3, 2, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8), wrap: c.wrap}
			r.cfg.Steps, r.cfg.Checkpoint.MaxDrift, r.cfg.Publish.Adapter = 5, c.drift, false
			require.NoError(t, r.runUntil(t, 3))
			fulls, err := checkpoint.FullSteps(r.cfg.Checkpoint.Dir)
			require.NoError(t, err)
			require.Equal(t, c.want, fulls)
		})
	}
}
