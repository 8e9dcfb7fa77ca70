package trainer

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// stepNumbers runs to the end and returns the numbers of each step.
func stepNumbers(t *testing.T, cfg Config, w *world) (steps []map[string]float64) {
	t.Helper()
	err := Run(t.Context(), cfg, Deps{
		Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab},
		Observer: func(e schemas.Event) {
			if e.Type == schemas.EventStepDone {
				steps = append(steps, maps.Clone(e.Metrics))
			}
		},
	})
	require.NoError(t, err)
	return steps
}

// slowRollouts makes rollouts last the longer the older the version is that they come from, as slow episodes do.
func slowRollouts(w *world) {
	w.change = func(sequence uint64, t *schemas.Trajectory) {
		t.StartedAt = time.Unix(1000, 0)
		took := time.Second + time.Duration(sequence%7)*100*time.Millisecond
		if oldest := t.OldestVersion(); oldest >= 0 {
			took += time.Duration(w.latest-oldest) * 10 * time.Second
		}
		t.FinishedAt = t.StartedAt.Add(took)
	}
}

// A run that refuses slow rollouts for their age reports the bias in their duration, and what they were.
func TestARunThatRefusesTheSlowReportsItsBias(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps, cfg.Eta, cfg.Depth, cfg.MaxAttempts = 30, 1, 1, 0
	w := newWorld(vocab)
	w.lag = 3
	slowRollouts(w)
	steps := stepNumbers(t, cfg, w)
	last := steps[len(steps)-1]
	require.Contains(t, metrics.Bias(last), "duration")
	require.Greater(t, metrics.BiasDuration.In(last), 0.1)
	require.Less(t, metrics.BiasDurationP.In(last), 0.001)
	require.Zero(t, metrics.BiasTurns.In(last), "no rollout has turns")
	require.GreaterOrEqual(t, last[metrics.EndedDuration.Of("stale")], 20.0, "stale are the rollouts of two or more versions ago")
	require.Contains(t, last, metrics.EndedLength.Of("stale"))
}

// A synchronous run, the reference, reports no bias, whatever its rollouts' durations are, also where some messages are refused, doubled or
// closed.
func TestASynchronousRunReportsNoBias(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps, cfg.MaxAttempts = 30, 0
	w := newWorld(vocab)
	w.noise = true
	slowRollouts(w)
	cancelled := 0.0
	for i, v := range stepNumbers(t, cfg, w) {
		require.Empty(t, metrics.Bias(v), "step %d", i+1)
		cancelled += metrics.CancelledSamples.In(v)
		require.Equal(t, metrics.CancelledSamples.In(v) > 0, v[metrics.CancelledSeconds.Name] > 0)
	}
	require.Positive(t, cancelled)
}

// Of a lost sample the time is known, and nothing else.
func TestTheTimeOfALostSampleIsKnown(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	w := newWorld(vocab)
	w.idle = true
	w.steal = func(ticket *schemas.Ticket) bool { return ticket.Seed%3 == 0 && ticket.Attempt < 2 }
	lost := false
	for _, v := range stepNumbers(t, cfg, w) {
		n := v[metrics.Rejected.Of(string(schemas.ReasonLost))]
		_, timed := v[metrics.LostSeconds.Name]
		require.Equal(t, n > 0, timed)
		lost = lost || n > 0
	}
	require.True(t, lost)
}
