package trainer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/metrics"
	"github.com/weir-rl/weir/trainer/shadow"
)

// shadowed is a shadow of a run in memory.
type shadowed struct {
	run   *nativeRun
	cfg   shadow.Config
	deps  shadow.Deps
	steps []shadow.Step
}

// newShadow makes a shadow that has the settings of the run, and ends when the run has no further step.
func newShadow(t *testing.T, run *nativeRun) *shadowed {
	t.Helper()
	s := &shadowed{run: run}
	s.cfg = shadow.Config{Config: run.cfg.Config, Eta: run.cfg.Eta, MinGroup: run.cfg.MinGroup, Trunks: run.cfg.Branch.Trunks}
	s.cfg.Checkpoint = checkpoint.Config{Dir: t.TempDir(), Keep: 2, Messages: 1, FullEvery: 3}
	seed := uint64(11) // the checkpoint has everything but the weights that adapters are added to
	if run.lora.Rank > 0 {
		seed = 3
	}
	s.deps = shadow.Deps{
		Run: run.cfg.Checkpoint.Dir, Name: run.w.run, Steps: run.cfg.Steps, Once: true, NewEngine: newWhole,
		OpenPolicy: func(context.Context, string) (gpu.Engine, error) { return unclosed{run.newEngine(t, seed)}, nil },
		Report:     func(step shadow.Step) error { s.steps = append(s.steps, step); return nil },
	}
	return s
}

// unclosed is an engine that the test closes.
type unclosed struct{ gpu.Engine }

func (unclosed) Close() error { return nil }

func (s *shadowed) follow(t *testing.T) {
	t.Helper()
	require.NoError(t, shadow.Run(t.Context(), s.cfg, s.deps))
}

// metric is a number of each step that the shadow reported.
func (s *shadowed) metric(key metrics.Key) (out []float64) {
	for _, step := range s.steps {
		out = append(out, key.In(step.Metrics))
	}
	return out
}

// tensors are the hashes of the files of tensors of a step's full checkpoint.
func tensors(t *testing.T, store string, step int64) map[string]string {
	t.Helper()
	out := map[string]string{}
	dir := checkpoint.StepDir(store, step)
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".safetensors" {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			out[name], err = checkpoint.HashFile(path)
		}
		return err
	}))
	require.NotEmpty(t, out)
	return out
}

func newShadowRun(t *testing.T, change func(*nativeRun)) *nativeRun {
	t.Helper()
	r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8)}
	r.cfg.Steps, r.cfg.Checkpoint.Every, r.cfg.Optimizer.LearningRate = 5, 5, 0.02
	r.cfg.Checkpoint.Keep = 6
	change(r)
	return r
}

func asynchronousRun(r *nativeRun) { r.cfg.Eta, r.cfg.Depth, r.w.lag, r.w.noise = 2, -1, 2, true }

// Invariant: a shadow whose settings are the run's makes the weights of the run.
func TestInvariantAShadowWithTheRunsSettingsMakesTheRunsWeights(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*nativeRun){
		"grpo":                     func(*nativeRun) {},
		"grpo, asynchronous":       asynchronousRun,
		"ppo, a critic of its own": func(r *nativeRun) { critical(&r.cfg, learner.CriticOwn); r.cfg.Checkpoint.FullEvery = 2 },
		"grpo, reference":          func(r *nativeRun) { r.cfg.Loss.KL.Coef = 0.1 },
		"remax":                    func(r *nativeRun) { r.cfg.Advantage.Name = "remax"; asynchronousRun(r) },
		"rae":                      func(r *nativeRun) { r.cfg.Advantage.Name = "rae" },
		"samples passed over": func(r *nativeRun) {
			r.cfg.Selection.Resample.By, r.cfg.Selection.Resample.Take = "on_correct", 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newShadowRun(t, change)
			steps := r.cfg.Steps
			r.cfg.Steps = 3
			r.train(t, nil)
			s := newShadow(t, r)
			s.deps.From, s.deps.Steps, s.deps.Once = 0, steps, false
			r.cfg.Steps = steps
			done := make(chan error, 1)
			go func() { done <- shadow.Run(t.Context(), s.cfg, s.deps) }() // while the run goes on
			r.train(t, nil)
			require.NoError(t, <-done)
			require.Equal(t, tensors(t, r.cfg.Checkpoint.Dir, steps), tensors(t, s.cfg.Checkpoint.Dir, steps))
			require.Len(t, s.steps, int(steps))
			weights := s.metric(metrics.ShadowWeights)
			require.Zero(t, weights[len(weights)-1])
			require.Zero(t, slices.Max(s.metric(metrics.ShadowMissed)))
			// Each trajectory of the run's steps, and no other, in the same step.
			mine, err := checkpoint.ReadRecords(s.cfg.Checkpoint.Dir)
			require.NoError(t, err)
			theirs, err := checkpoint.ReadRecords(r.cfg.Checkpoint.Dir)
			require.NoError(t, err)
			require.Len(t, mine, len(theirs))
			for i := range mine {
				require.Equal(t, theirs[i].Groups, mine[i].Groups)
				require.Empty(t, mine[i].Rejected)
			}
		})
	}
}

// A shadow under another loss has other weights, and the run those that it has without a shadow. Nothing is written beside the shadow's own
// folder.
func TestAShadowUnderAnotherLossLeavesTheRunAsItIs(t *testing.T) {
	t.Parallel()
	alone, beside := newShadowRun(t, asynchronousRun), newShadowRun(t, asynchronousRun)
	alone.train(t, nil)
	beside.train(t, nil)
	before := listFiles(t, beside.cfg.Checkpoint.Dir)
	var shadows []*shadowed
	for _, loss := range []string{"reinforce", "cispo"} {
		s := newShadow(t, beside)
		s.cfg.Loss.Name, s.deps.From = loss, 0
		s.follow(t)
		shadows = append(shadows, s)
		distance := s.metric(metrics.ShadowWeights)
		require.Positive(t, distance[len(distance)-1])
		kl := s.metric(metrics.ShadowKL)
		require.Positive(t, kl[len(kl)-1])
		for _, ess := range s.metric(metrics.ShadowESS) {
			require.Positive(t, ess)
			require.LessOrEqual(t, ess, 1+1e-12)
		}
	}
	last := alone.cfg.Steps
	run := tensors(t, beside.cfg.Checkpoint.Dir, last)
	require.Equal(t, tensors(t, alone.cfg.Checkpoint.Dir, last), run)
	require.NotEqual(t, run, tensors(t, shadows[0].cfg.Checkpoint.Dir, last))
	require.NotEqual(t, tensors(t, shadows[1].cfg.Checkpoint.Dir, last), tensors(t, shadows[0].cfg.Checkpoint.Dir, last))
	require.Equal(t, before, listFiles(t, beside.cfg.Checkpoint.Dir))
}

// listFiles lists the files of a folder with their hashes.
func listFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			out[path], err = checkpoint.HashFile(path)
		}
		return err
	}))
	return out
}

// Invariant: a shadow's batch never holds a trajectory whose oldest token is more than the shadow's eta behind the version that the step
// began with.
func TestInvariantAShadowTrainsWithinItsOwnEta(t *testing.T) {
	t.Parallel()
	r := newShadowRun(t, func(r *nativeRun) { asynchronousRun(r); r.cfg.Steps, r.cfg.Checkpoint.Every = 8, 8 })
	r.train(t, nil)
	for eta := range 2 {
		s := newShadow(t, r)
		s.cfg.Eta, s.deps.From = eta, 0
		s.follow(t)
		records, err := checkpoint.ReadRecords(s.cfg.Checkpoint.Dir)
		require.NoError(t, err)
		stale := 0
		for _, line := range records {
			for _, g := range line.Groups {
				require.GreaterOrEqual(t, len(g.Members), s.cfg.MinGroup)
				for _, m := range g.Members {
					require.LessOrEqual(t, line.Step-1-m.Oldest, int64(eta))
				}
			}
			for _, m := range line.Rejected {
				require.Contains(t, []schemas.Reason{schemas.ReasonStale, schemas.ReasonIncomplete, schemas.ReasonZeroVariance}, m.Reason)
				stale++
			}
		}
		require.Positive(t, stale, "the run has none that is stale")
		theirs, err := checkpoint.ReadRecords(r.cfg.Checkpoint.Dir)
		require.NoError(t, err)
		require.Less(t, countUsed(records), countUsed(theirs))
	}
}

func countUsed(records []checkpoint.Record) (n int) {
	for _, r := range records {
		for i := range r.Groups {
			n += len(r.Groups[i].Used())
		}
	}
	return n
}

// Killed at any instant, a shadow goes on to the weights that it has undisturbed.
func TestAShadowThatIsKilledAnywhereGoesOnTheSame(t *testing.T) {
	t.Parallel()
	r := newShadowRun(t, asynchronousRun)
	r.train(t, nil)
	change := func(s *shadowed) { s.cfg.Loss.Name, s.cfg.Eta, s.deps.From = "cispo", 1, 0 }
	whole := newShadow(t, r)
	change(whole)
	stages := 0
	whole.deps.After = func(string) { stages++ }
	whole.follow(t)
	require.Greater(t, stages, 30)
	want := tensors(t, whole.cfg.Checkpoint.Dir, r.cfg.Steps)

	killed := newShadow(t, r)
	change(killed)
	for kill, ended := 1, false; !ended; kill++ {
		left := kill % 7
		killed.deps.After = func(string) {
			if left--; left < 0 {
				panic(errCrash)
			}
		}
		if kill > 200 {
			killed.deps.After = nil
		}
		func() {
			defer func() {
				if r := recover(); r != nil && !errors.Is(r.(error), errCrash) {
					panic(r)
				}
			}()
			killed.follow(t)
			ended = true
		}()
	}
	require.Equal(t, want, tensors(t, killed.cfg.Checkpoint.Dir, r.cfg.Steps))
	mine, err := checkpoint.ReadRecords(killed.cfg.Checkpoint.Dir)
	require.NoError(t, err)
	theirs, err := checkpoint.ReadRecords(whole.cfg.Checkpoint.Dir)
	require.NoError(t, err)
	for i := range mine {
		require.Equal(t, theirs[i].Groups, mine[i].Groups)
		require.Equal(t, theirs[i].Result.Numbers, mine[i].Result.Numbers)
	}
}

// Batches that are gone before the shadow comes to them are counted and reported, and the shadow goes on with the next; also after a kill.
func TestAShadowThatIsLateCountsWhatItMissed(t *testing.T) {
	t.Parallel()
	r := newShadowRun(t, func(*nativeRun) {})
	r.train(t, nil)
	for _, step := range []int64{2, 3} {
		require.NoError(t, os.Remove(checkpoint.BatchPath(r.cfg.Checkpoint.Dir, step)))
	}
	s := newShadow(t, r)
	s.deps.From = 0
	s.deps.Report = func(step shadow.Step) error {
		s.steps = append(s.steps, step)
		if step.Number == 4 && len(s.steps) == 2 {
			return errCrash
		}
		return nil
	}
	require.ErrorIs(t, shadow.Run(t.Context(), s.cfg, s.deps), errCrash)
	s.follow(t)
	var steps []int64
	for _, step := range s.steps {
		steps = append(steps, step.Number)
	}
	require.Equal(t, []int64{1, 4, 5}, steps)
	require.Equal(t, []float64{0, 2, 2}, s.metric(metrics.ShadowMissed))

	// A batch that was changed is no batch that is gone.
	path := checkpoint.BatchPath(r.cfg.Checkpoint.Dir, 1)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))
	other := newShadow(t, r)
	other.deps.From = 0
	err = shadow.Run(t.Context(), other.cfg, other.deps)
	require.ErrorContains(t, err, "step 1: ")
	require.ErrorContains(t, err, filepath.Base(path))
}

// A shadow that begins while the run trains takes the newest full checkpoint; a step that has none is named with those that have.
func TestAShadowBeginsAtACheckpointOfTheRun(t *testing.T) {
	t.Parallel()
	r := newShadowRun(t, func(r *nativeRun) { r.cfg.Checkpoint.Every, r.cfg.Checkpoint.Keep = 0, 1 })
	r.cfg.Steps = 3
	r.train(t, nil)
	s := newShadow(t, r)
	require.NoError(t, os.RemoveAll(checkpoint.StepDir(r.cfg.Checkpoint.Dir, 0)))
	s.deps.From, s.deps.Steps = 0, 5
	err := shadow.Run(t.Context(), s.cfg, s.deps)
	require.ErrorContains(t, err, "step 0 has no checkpoint: there are checkpoints of the steps [3]")
	s.deps.From = shadow.Newest
	s.follow(t)
	require.Empty(t, s.steps)
	r.cfg.Steps = 5
	r.train(t, nil)
	s.follow(t)
	require.Len(t, s.steps, 2)
	require.Equal(t, tensors(t, r.cfg.Checkpoint.Dir, 5), tensors(t, s.cfg.Checkpoint.Dir, 5))
	s.deps.Name = "other"
	require.ErrorContains(t, shadow.Run(t.Context(), s.cfg, s.deps), fmt.Sprintf("is a shadow of run %q, this is run %q", r.w.run, "other"))
}
