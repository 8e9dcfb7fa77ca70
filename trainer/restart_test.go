package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Defect P9: what was accepted in batches of another size stopped the run for as many versions as it had, or let it burst.
func TestBatchGroupsMayChangeOnRestart(t *testing.T) {
	t.Parallel()
	const at = 10
	for _, second := range []int{2, 4, 8} {
		t.Run(fmt.Sprint("4 to ", second), func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t.TempDir())
			cfg.BatchGroups, cfg.Eta, cfg.Depth, cfg.Steps = 4, 1, 1, 40
			w := newWorld(vocab)
			observe(t, cfg, w, func(e schemas.Event) {
				if e.Step == at {
					operate(t, w, func(c *schemas.Control) { c.Draining = true })
				}
			})
			before, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
			require.NoError(t, err)
			began := before[len(before)-1]
			cfg.BatchGroups, cfg.Steps = second, began.Step+6
			observe(t, cfg, w, func(schemas.Event) {})
			records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
			require.NoError(t, err)
			require.Len(t, records, int(cfg.Steps)+1)
			for _, r := range records[began.Step+1:] {
				require.Len(t, r.Groups, second)
				issued := int(r.NextCursor - began.NextCursor)
				require.LessOrEqual(t, issued, (int(r.Step-began.Step)+2)*second, "no burst at step %d", r.Step)
			}
		})
	}
}

// Defect P10: the coefficient of the checkpoint won over a changed configuration, also where nothing adapts.
func TestTheKLCoefficientOfTheConfigurationWinsWhenItIsChanged(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, cfg Config, w *world) {
		t.Helper()
		require.NoError(t, Run(t.Context(), cfg, Deps{
			Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab},
			NewEngine: func(gpu.Config) (gpu.Engine, error) { return enginetest.NewBigram(vocab), nil },
		}))
	}
	final := func(t *testing.T, coefs ...float64) []float32 {
		t.Helper()
		cfg := testConfig(t.TempDir())
		w := newWorld(vocab)
		for i, coef := range coefs {
			cfg.Steps, cfg.Loss.KL.Coef = int64(3*(i+1)), coef
			run(t, cfg, w)
		}
		return w.weights[cfg.Steps]
	}
	require.NotEqual(t, final(t, 0.1, 0.1), final(t, 0.1, 5), "a changed coefficient is used")
	require.NotEqual(t, final(t, 0.1, 0.1), final(t, 0.1, 0), "it can be turned off")
	require.NotEqual(t, final(t, 0.1, 0, 0), final(t, 0.1, 0, 5), "and on again")

	adapted := func(t *testing.T, second float64) float64 {
		t.Helper()
		cfg := testConfig(t.TempDir())
		w := newWorld(vocab)
		cfg.Loss.KL.Coef, cfg.Loss.KL.In, cfg.Loss.KL.Target, cfg.Loss.KL.Horizon = 0.1, "reward", 1e-4, 1000
		cfg.Steps = 3
		run(t, cfg, w)
		cfg.Steps, cfg.Loss.KL.Coef = 4, second
		run(t, cfg, w)
		c, err := checkpoint.Read(checkpoint.StepDir(cfg.Checkpoint.Dir, 4), 4)
		require.NoError(t, err)
		return *c.State.KLCoef
	}
	// One step of 12 trajectories changes it by at most 0.2 * 12 / 1000 of itself.
	require.Greater(t, adapted(t, 0.1), 0.1*(1+0.0024), "what has adapted is kept")
	require.InDelta(t, 0.7, adapted(t, 0.7), 0.7*0.0024+1e-9, "what was changed begins anew")
}

// Defect F9: the gauge said 0 from a restart to the first step.
func TestTheVersionIsMeasuredFromTheStart(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps = 3
	w := newWorld(vocab)
	train(t, cfg, w)
	m, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	cfg.Steps = 4
	looked := false
	require.NoError(t, Run(t.Context(), cfg, Deps{
		Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Metrics: m,
		After: func(stage string) {
			if stage == "batch" {
				looked = true
				require.EqualValues(t, 3, testutil.ToFloat64(m.version))
			}
		},
	}))
	require.True(t, looked)
	require.EqualValues(t, 4, testutil.ToFloat64(m.version))
}

// Defect F9: what goes wrong while step 3 is saved was said to be of step 4.
func TestAFaultOfASaveNamesItsStep(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Checkpoint.FullEvery = 1
	w := newWorld(vocab)
	saves := 0
	err := Run(t.Context(), cfg, Deps{Stream: w, Prompts: prompts{vocab}, Engine: dying{enginetest.NewBigram(vocab), func(point string) error {
		if point == "within save" {
			saves++
		}
		if saves == 4 {
			return errors.New("no space left")
		}
		return nil
	}}})
	require.EqualError(t, err, "step 3: save checkpoint of step 3: no space left")
}

// deaf is a world where following control and the seat fails for a while.
type deaf struct {
	*world
	control, seat int
	taken         chan error
}

func (d *deaf) FollowControl(ctx context.Context, changed func(*schemas.Control)) error {
	if d.control++; d.control <= 2 {
		return errors.New("the stream has no leader")
	}
	return d.world.FollowControl(ctx, changed)
}

func (d *deaf) Watch(ctx context.Context) error {
	if d.seat++; d.seat <= 2 {
		return errors.New("the stream has no leader")
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-d.taken:
		return err
	}
}

// Defect S10: after one error control was followed no more, and a drain went unnoticed for the rest of the run.
func TestControlIsFollowedAgainAfterAnError(t *testing.T) {
	t.Parallel()
	d := &deaf{world: newWorld(vocab)}
	operateNow := &schemas.Control{Run: "test", Draining: true}
	d.world.control = operateNow
	f := followControl(t.Context(), d, slog.New(slog.DiscardHandler))
	defer f.stop()
	<-f.batchContext().Done()
	require.ErrorIs(t, context.Cause(f.batchContext()), errDrained)
}

// Defect S10: likewise whether another trainer has taken the run.
func TestTheSeatIsWatchedAgainAfterAnError(t *testing.T) {
	t.Parallel()
	d := &deaf{world: newWorld(vocab), taken: make(chan error, 1)}
	d.taken <- streams.ErrFenced
	ctx, fence := context.WithCancelCause(t.Context())
	g := watchSeat(ctx, d, fence, slog.New(slog.DiscardHandler))
	defer g.stop()
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), streams.ErrFenced)
}

// Defect F9: a stranger's bytes in the control key ended the trainer.
func TestUnreadableControlIsWrittenAnew(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	run := streamtest.Open(t, conn)
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	kv, err := js.KeyValue(t.Context(), "WEIR_test_CONTROL")
	require.NoError(t, err)
	spoil := func() {
		_, err := kv.Put(t.Context(), "control", []byte("no control"))
		require.NoError(t, err)
	}
	spoil()
	working(t, run)
	cfg := takenOver(t)
	stream, err := OverStreams(run, weights.DefaultConfig())
	require.NoError(t, err)
	require.NoError(t, Run(t.Context(), cfg, Deps{
		Engine: enginetest.NewBigram(vocab), Stream: stream, Prompts: prompts{vocab}, Log: streamtest.Log(t),
		Observer: func(e schemas.Event) {
			if e.Type == schemas.EventStepDone && e.Step == 2 {
				spoil()
			}
		},
	}))
	c, err := run.Control(t.Context())
	require.NoError(t, err)
	require.Equal(t, cfg.Steps, c.PolicyVersion)

	spoil()
	cfg.Checkpoint.Dir = t.TempDir()
	stream, err = OverStreams(run, weights.DefaultConfig())
	require.NoError(t, err)
	err = Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: stream, Prompts: prompts{vocab}})
	require.ErrorContains(t, err, "has published version 6", "a lost folder is not taken for a fresh run without control either")
}

// Defect P17: going back with another learning rate ended, at each start, with an error about another trainer.
func TestGoingBackWithAChangeSaysWhatToDo(t *testing.T) {
	t.Parallel()
	run := streamtest.Open(t, streamtest.Conn(t))
	rest := working(t, run)
	cfg := takenOver(t)
	cfg.Steps = 4
	trainOver(t, cfg, run)
	published, err := run.LatestManifest(t.Context())
	require.NoError(t, err)

	// As it was, it goes on.
	require.NoError(t, os.RemoveAll(checkpoint.StepDir(cfg.Checkpoint.Dir, 4)))
	trainOver(t, cfg, run)

	require.NoError(t, os.RemoveAll(checkpoint.StepDir(cfg.Checkpoint.Dir, 4)))
	cfg.Steps, cfg.Optimizer.LearningRate = 6, 0.1
	for range 2 {
		stream, err := OverStreams(run, weights.DefaultConfig())
		require.NoError(t, err)
		err = Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: stream, Prompts: prompts{vocab}})
		require.ErrorIs(t, err, ErrAbandoned)
		require.NotErrorIs(t, err, streams.ErrFenced)
		require.ErrorContains(t, err, "--model.folder "+checkpoint.StepDir(cfg.Checkpoint.Dir, 4)+" --trainer.cold_start.steps 0")
		require.FileExists(t, filepath.Join(checkpoint.StepDir(cfg.Checkpoint.Dir, 4), gpu.ConfigFile), "it is a model folder")
	}
	now, err := run.LatestManifest(t.Context())
	require.NoError(t, err)
	require.Equal(t, published, now, "the published version stays")
	rest()
}

// Defect S11: eta raised between a crash and the restart let the same step train on what it had refused before.
func TestWhatWasRefusedBeforeACrashIsNotTrainedOnUnderAHigherEta(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"after reject", "within save"} {
		for nth := range 12 {
			t.Run(fmt.Sprint(point, " ", nth), func(t *testing.T) {
				t.Parallel()
				cfg := testConfig(t.TempDir())
				cfg.Eta, cfg.Depth, cfg.Steps = 1, 1, 9
				w := newWorld(vocab)
				w.lag = 2
				seen, crashed := 0, false
				w.crash = func(at string) error {
					if at == point && !crashed {
						if seen++; seen == nth+1 {
							crashed = true
							return errCrash
						}
					}
					return nil
				}
				run := func() error {
					return Run(t.Context(), cfg, Deps{Engine: dying{enginetest.NewBigram(vocab), w.crash}, Stream: w, Prompts: prompts{vocab}})
				}
				if err := run(); err != nil {
					require.ErrorIs(t, err, errCrash)
					if w.control != nil {
						operate(t, w, func(c *schemas.Control) { c.Eta = 4 })
					}
					require.NoError(t, run())
				}
				records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
				require.NoError(t, err)
				trained := 0
				for _, r := range records {
					for _, g := range r.Groups {
						for _, m := range g.Members {
							trained++
							require.NotContains(t, w.rejected, m.Sequence, "%s was refused and trained on", m.ID)
						}
					}
				}
				require.Positive(t, trained)
				if point == "after reject" {
					require.Contains(t, slices.Collect(maps.Values(w.rejected)), schemas.ReasonStale)
				}
			})
		}
	}
}
