package trainer

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/loss"
)

// observe runs to the end and calls after each step.
func observe(t *testing.T, cfg Config, w *world, after func(e schemas.Event)) {
	t.Helper()
	require.NoError(t, Run(t.Context(), cfg, Deps{
		Engine: dying{enginetest.NewBigram(vocab), w.crash}, Stream: w, Prompts: prompts{vocab},
		Observer: func(e schemas.Event) {
			if e.Type == schemas.EventStepDone {
				after(e)
			}
		},
	}))
}

// operate writes control as an operator does.
func operate(t *testing.T, w *world, change func(*schemas.Control)) {
	t.Helper()
	require.NoError(t, w.UpdateControl(t.Context(), func(c *schemas.Control) *schemas.Control {
		change(c)
		return c
	}))
}

func TestEtaAndDepthChangeWhileTheRunGoesOn(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps, cfg.Eta, cfg.Depth = 8, 2, -1
	w := newWorld(vocab)
	var etas, depths []float64
	observe(t, cfg, w, func(e schemas.Event) {
		etas, depths = append(etas, e.Metrics["admission/eta"]), append(depths, e.Metrics["admission/depth"])
		switch e.Step {
		case 2:
			operate(t, w, func(c *schemas.Control) { c.Eta = 4 })
		case 5:
			operate(t, w, func(c *schemas.Control) { c.Eta, c.Depth, c.Paused = 1, 0, true })
		}
	})
	// A change holds from the next step on, and depth follows eta until it is chosen.
	require.Equal(t, []float64{2, 2, 4, 4, 4, 1, 1, 1}, etas)
	require.Equal(t, []float64{2, 2, 4, 4, 4, 0, 0, 0}, depths)
	require.True(t, w.control.Paused, "what operators write is left alone")
	require.Equal(t, 1, w.control.Eta)
	require.EqualValues(t, 7, w.control.MinVersion)
	changed := map[int64][]checkpoint.RecordChange{}
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	for _, r := range records {
		if r.Changed != nil {
			changed[r.Step] = r.Changed
		}
	}
	require.Equal(t, map[int64][]checkpoint.RecordChange{
		3: {{Key: "control.eta", Before: "2", After: "4"}},
		6: {{Key: "control.paused", Before: "false", After: "true"}, {Key: "control.eta", Before: "4", After: "1"}, {Key: "control.depth", Before: "4", After: "0"}},
	}, changed, "what operators did is in the record")

	cfg.Steps = 9
	observe(t, cfg, w, func(e schemas.Event) {
		require.EqualValues(t, 1, e.Metrics["admission/eta"], "it outlives a restart")
	})
	cfg.Steps, cfg.Eta = 10, 3
	observe(t, cfg, w, func(e schemas.Event) {
		require.EqualValues(t, 3, e.Metrics["admission/eta"], "until the configuration is changed")
	})
}

// Defect P7: the bound of pending messages was that of the eta at the start.
func TestARaisedEtaMakesRoomForWhatIsPending(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps, cfg.BatchGroups, cfg.GroupSize, cfg.Deterministic = 22, 16, 8, true
	w := newWorld(vocab)
	w.backwards = true // the oldest group, which the others wait for, comes last
	observe(t, cfg, w, func(e schemas.Event) {
		if e.Step == 2 {
			operate(t, w, func(c *schemas.Control) { c.Eta, c.Depth = 16, 16 })
		}
	})
	require.GreaterOrEqual(t, len(w.issued), int(cfg.Steps)*cfg.BatchGroups*cfg.GroupSize)
}

func TestADrainEndsTheRunAndTheNextStartGoesOn(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps = 30
	w := newWorld(vocab)
	last := int64(0)
	observe(t, cfg, w, func(e schemas.Event) {
		if last = e.Step; last == 3 {
			operate(t, w, func(c *schemas.Control) { c.Draining = true })
		}
	})
	require.GreaterOrEqual(t, last, int64(3))
	require.Less(t, last, int64(30))
	require.True(t, w.control.Draining)
	cfg.Steps = last + 2
	observe(t, cfg, w, func(e schemas.Event) { last = e.Step })
	require.Equal(t, cfg.Steps, last)
	require.False(t, w.control.Draining)
}

func TestALostCheckpointFolderIsNotTakenForAFreshRun(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps = 2
	w := newWorld(vocab)
	train(t, cfg, w)
	cfg.Checkpoint.Dir = t.TempDir()
	err := Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}})
	require.ErrorContains(t, err, "run test has published version 2")
}

func TestACheckpointOfAnotherRunIsRefused(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps = 1
	train(t, cfg, newWorld(vocab))
	w := newWorld(vocab)
	w.run = "other"
	err := Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}})
	require.ErrorContains(t, err, `is of run "test", this is run "other"`)
}

func TestGoneBackToAnOlderCheckpointItTrainsOnTheSameBatches(t *testing.T) {
	t.Parallel()
	// A light checkpoint has no weights to be damaged, but its state.
	for eta, full := range map[int]bool{0: false, 1: true, 3: false, 4: true} {
		t.Run(fmt.Sprint("eta ", eta, ", full ", full), func(t *testing.T) {
			t.Parallel()
			file := "state.json"
			prepare := func() (Config, *world) {
				cfg := testConfig(t.TempDir())
				if full {
					file, cfg.Checkpoint.FullEvery = "model.safetensors", 1
				}
				cfg.Eta, cfg.Depth, cfg.Steps = eta, eta, 7
				w := newWorld(vocab)
				w.noise, w.lag = true, int64(eta)
				return cfg, w
			}
			cfg, w := prepare()
			want := train(t, cfg, w)

			// Killed amid the step after the fourth, whose checkpoint is then found damaged.
			cfg, w = prepare()
			reads := 0
			w.crash = func(at string) error {
				if at == "after next" && w.latest == 4 {
					if reads++; reads == 7 {
						return errCrash
					}
				}
				return nil
			}
			run := func() error {
				return Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}})
			}
			require.ErrorIs(t, run(), errCrash)
			require.NoError(t, os.Truncate(filepath.Join(checkpoint.StepDir(cfg.Checkpoint.Dir, 4), file), 7))
			require.Equal(t, want, train(t, cfg, w))
			audit(t, cfg, w)
		})
	}
}

func TestTheReferencePolicyStaysWhereTheRunBegan(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Loss.KL.Coef = 0.1
	w := newWorld(vocab)
	run := func(cfg Config) (*enginetest.Bigram, error) {
		reference := enginetest.NewBigram(vocab)
		err := Run(t.Context(), cfg, Deps{
			Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab},
			NewEngine: func(gpu.Config) (gpu.Engine, error) { return reference, nil },
		})
		return reference, err
	}
	for _, steps := range []int64{3, 6} {
		cfg.Steps = steps
		reference, err := run(cfg)
		require.NoError(t, err)
		require.Equal(t, w.weights[0], reference.Table)
	}
	err := Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}})
	require.ErrorContains(t, err, "needs a reference policy")

	cfg.Loss.KL.In, cfg.Loss.KL.Target, cfg.Loss.KL.Horizon = loss.KLInReward, 0.01, 100
	cfg.Steps = 8
	_, err = run(cfg)
	require.NoError(t, err)
	c, err := checkpoint.Read(checkpoint.StepDir(cfg.Checkpoint.Dir, 8), 8)
	require.NoError(t, err)
	require.NotEqual(t, 0.1, *c.State.KLCoef, "the coefficient adapts, and the checkpoint keeps it")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	require.NoError(t, err)
	_, err = NewMetrics(registry)
	require.Error(t, err)
	_, err = NewMetrics(nil)
	require.NoError(t, err, "registered nowhere")
	cfg := testConfig(t.TempDir())
	w := newWorld(vocab)
	w.noise = true
	require.NoError(t, Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Metrics: m}))
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "weir_trainer_steps_total" {
			require.EqualValues(t, cfg.Steps, f.GetMetric()[0].GetCounter().GetValue())
		}
	}
}
