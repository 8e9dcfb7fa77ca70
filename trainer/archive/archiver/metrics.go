package archiver

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the archiver's collectors. Their names begin with weir_archive_. The methods of a nil Metrics do nothing.
type Metrics struct {
	kept, lost, failures prometheus.Counter
	behind, spooled      prometheus.Gauge
	sent, unsent         prometheus.Counter
}

// NewMetrics makes the collectors and registers them; a nil Registerer registers none. It fails where they are registered already.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	own := prometheus.NewRegistry()
	with := promauto.With(own)
	gauge := func(name, help string) prometheus.Gauge {
		return with.NewGauge(prometheus.GaugeOpts{Name: "weir_archive_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return with.NewCounter(prometheus.CounterOpts{Name: "weir_archive_" + name, Help: help})
	}
	m := &Metrics{
		kept:     counter("sequences_total", "Sequences of the trajectory stream that this process has kept."),
		lost:     counter("lost_total", "Messages of the trajectory stream that had left it before this process could keep them."),
		failures: counter("failures_total", "Tries to keep messages that failed, as on a full disk; each is repeated."),
		behind:   gauge("behind_messages", "Messages that the trainer asked for and that are not kept yet."),
		spooled:  gauge("spool_bytes", "Size of the segments that wait on this disk until the bucket has them."),
		sent:     counter("uploads_total", "Segments that the bucket has confirmed."),
		unsent:   counter("upload_failures_total", "Tries to put a segment into the bucket that failed; each is repeated."),
	}
	if registerer == nil {
		return m, nil
	}
	if err := registerer.Register(own); err != nil {
		return nil, fmt.Errorf("register archive metrics: %w", err)
	}
	return m, nil
}

// SetWaiting shows the size of the segments that the bucket does not have yet.
func (m *Metrics) SetWaiting(bytes int64) {
	if m != nil {
		m.spooled.Set(float64(bytes))
	}
}

// CountSent counts a try to put a segment into the bucket.
func (m *Metrics) CountSent(err error) {
	switch {
	case m == nil:
	case err != nil:
		m.unsent.Inc()
	default:
		m.sent.Inc()
	}
}

func (m *Metrics) addKept(sequences, lost, behind uint64) {
	if m != nil {
		m.kept.Add(float64(sequences))
		m.lost.Add(float64(lost))
		m.behind.Set(float64(behind))
	}
}

func (m *Metrics) countFailure(behind uint64) {
	if m != nil {
		m.failures.Inc()
		m.behind.Set(float64(behind))
	}
}
