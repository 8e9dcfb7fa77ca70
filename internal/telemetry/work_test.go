package telemetry

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// Defect F8: a role was called ready as long as its process lived, however long nothing got done.
func TestARoleThatDoesNothingThoughWorkWaitsIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var done atomic.Int64
		var waits atomic.Value
		waits.Store("")
		log := new(bytes.Buffer)
		h := NewHealth("work")
		require.Error(t, h.Ready(), "starting")
		go h.Watch(ctx, Work{
			Part: "work", Done: func() float64 { return float64(done.Load()) },
			Waits: func(context.Context) string { return waits.Load().(string) },
		}, time.Minute, slog.New(slog.NewTextHandler(log, nil)))
		after := func(d time.Duration) error {
			<-time.After(d)
			synctest.Wait()
			return h.Ready()
		}
		require.NoError(t, after(time.Hour), "there is nothing to do")
		waits.Store("3 tickets wait")
		require.NoError(t, after(50*time.Second), "the work has just come")
		done.Add(1)
		require.NoError(t, after(59*time.Second), "some of it was done")
		require.EqualError(t, after(30*time.Second), "not ready: work: nothing was done for 1m24s, and 3 tickets wait")
		require.Error(t, after(time.Hour))
		require.Equal(t, 1, strings.Count(log.String(), "none gets done"), log)
		done.Add(1)
		require.NoError(t, after(10*time.Second))
		require.Error(t, after(2*time.Minute))
		waits.Store("")
		require.NoError(t, after(10*time.Second))
	})
}

func TestCountedSumsWhatIsNamed(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "a_total", Help: "a"}, []string{"why"})
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "b", Help: "b"})
	s := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "c_seconds", Help: "c"})
	other := prometheus.NewCounter(prometheus.CounterOpts{Name: "other_total", Help: "other"})
	reg.MustRegister(c, g, s, other)
	c.WithLabelValues("x").Add(2)
	c.WithLabelValues("y").Add(3)
	g.Set(7)
	s.Observe(100)
	other.Inc()
	require.Equal(t, 13.0, Counted(reg, "a_total", "b", "c_seconds", "absent"))
}
