package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Work is the work of a role: it gets done, or waits.
type Work struct {
	// Part is the name under which Health tells of it.
	Part string
	// Done is a number that grows whenever some of the work is done.
	Done func() float64
	// Waits says which work waits to be done, for people to read; "" where none does.
	Waits func(ctx context.Context) string
}

// The pauses between two looks at a role's work.
const (
	lookOften  = 100 * time.Millisecond
	lookSeldom = 10 * time.Second
)

// Watch looks at the work until ctx ends. While work waits and none was done for the time of after, the part is not
// ready, and the log says so once. With after 0 it looks at nothing, and the part is ready.
func (h *Health) Watch(ctx context.Context, w Work, after time.Duration, log *slog.Logger) {
	h.Set(w.Part, nil)
	if after <= 0 {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(min(max(after/10, lookOften), lookSeldom))
	defer tick.Stop()
	done, since, stalled := w.Done(), time.Now(), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		waits := w.Waits(ctx)
		if now := w.Done(); waits == "" || now != done {
			if stalled {
				log.Info("work gets done again", "part", w.Part)
			}
			done, since, stalled = now, time.Now(), false
			h.Set(w.Part, nil)
			continue
		}
		if time.Since(since) < after || ctx.Err() != nil {
			continue
		}
		err := fmt.Errorf("nothing was done for %s, and %s", time.Since(since).Round(time.Second), waits)
		if !stalled {
			log.Warn("work waits and none gets done", "part", w.Part, "err", err)
		}
		stalled = true
		h.Set(w.Part, err)
	}
}

// Counted is the sum of the named metrics of a registry, over all their labels: the values of counters and
// gauges, the counts of histograms. A metric that is not there counts as 0.
func Counted(from prometheus.Gatherer, names ...string) float64 {
	families, err := from.Gather()
	if err != nil {
		return 0
	}
	sum := 0.0
	for _, f := range families {
		if !slices.Contains(names, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += metricValue(m)
		}
	}
	return sum
}

func metricValue(m *dto.Metric) float64 {
	switch {
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	case m.GetHistogram() != nil:
		return float64(m.GetHistogram().GetSampleCount())
	}
	return 0
}
