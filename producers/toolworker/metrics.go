package toolworker

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts a tool worker's work. A nil *Metrics counts nothing.
type Metrics struct {
	sessions prometheus.Gauge
	ended    *prometheus.CounterVec
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	waiting  prometheus.Gauge
	refusals *prometheus.CounterVec
	repeated prometheus.Counter
}

// NewMetrics makes the collectors and registers them; a nil Registerer registers none. It fails where they are registered already.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		sessions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_tool_sessions", Help: "Sessions of episodes that are open at the tool worker.",
		}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_tool_sessions_ended_total", Help: "Sessions that ended, by why: closed, replaced, expired, drained or failed.",
		}, []string{"why"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_tool_calls_total", Help: "Calls that the tool worker carried out, by tool and outcome.",
		}, []string{"tool", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_tool_call_seconds", Help: "Wall-clock of the calls at the tool worker, without their wait, by tool.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}, []string{"tool"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_tool_calls_waiting", Help: "Requests that wait at the tool worker for one of toolworker.calls.",
		}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_tool_refusals_total", Help: "Requests that the tool worker refused, by why: sessions, queue, gone or wrong.",
		}, []string{"why"}),
		repeated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_tool_repeats_total", Help: "Requests that came again and were answered without being carried out again.",
		}),
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.sessions, m.ended, m.calls, m.seconds, m.waiting, m.refusals, m.repeated} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register tool worker metrics: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) countOpened() {
	if m != nil {
		m.sessions.Inc()
	}
}

func (m *Metrics) countEnded(why string) {
	if m != nil {
		m.sessions.Dec()
		m.ended.WithLabelValues(why).Inc()
	}
}

func (m *Metrics) addWaiting(change float64) {
	if m != nil {
		m.waiting.Add(change)
	}
}

// countCall names only tools that exist.
func (m *Metrics) countCall(tool, outcome string, took time.Duration) {
	if m != nil {
		m.calls.WithLabelValues(tool, outcome).Inc()
		m.seconds.WithLabelValues(tool).Observe(took.Seconds())
	}
}

func (m *Metrics) countRefused(why string) {
	if m != nil {
		m.refusals.WithLabelValues(why).Inc()
	}
}

func (m *Metrics) countRepeat() {
	if m != nil {
		m.repeated.Inc()
	}
}
