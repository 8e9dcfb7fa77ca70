package trainer

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Metrics are the trainer's collectors. Their names begin with weir_trainer_.
type Metrics struct {
	version                              prometheus.Gauge
	steps, trajectories, tokens, skipped prometheus.Counter
	deliveries, taken, unkept            prometheus.Counter
	spooled, behind, awaited             prometheus.Gauge
	sent, unsent                         prometheus.Counter
	rejected, refusals                   *prometheus.CounterVec
	staleness                            prometheus.Histogram
	phases                               *prometheus.HistogramVec
	// last are the gauges of the last step's report, by its keys.
	last map[string]prometheus.Gauge
}

// NewMetrics makes the collectors and registers them; a nil Registerer registers none. It fails where they are registered
// already.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	own := prometheus.NewRegistry()
	with := promauto.With(own)
	gauge := func(name, help string) prometheus.Gauge {
		return with.NewGauge(prometheus.GaugeOpts{Name: "weir_trainer_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return with.NewCounter(prometheus.CounterOpts{Name: "weir_trainer_" + name, Help: help})
	}
	m := &Metrics{
		version:    gauge("policy_version", "Newest policy version that was saved and published."),
		deliveries: counter("deliveries_total", "Messages read from the trajectory stream by this process."),
		taken:      counter("taken_up_total", "Trajectories read by this process that a group had use for when they came: not refused, and not ones that had ended."),
		unkept: counter("archive_lost_total",
			"Messages of the trajectory stream that were purged before the archive could keep them."),
		spooled:      gauge("archive_spool_bytes", "Size of the archive's segments that wait on this disk until the bucket has them."),
		behind:       gauge("archive_behind_messages", "Messages that the role weir archive was asked to keep and has not kept yet."),
		awaited:      gauge("archive_awaited", "1 while the run waits until the role weir archive has kept messages, else 0."),
		sent:         counter("archive_uploads_total", "Segments that the archive's bucket has confirmed."),
		unsent:       counter("archive_upload_failures_total", "Tries to put a segment into the archive's bucket that failed; each is repeated."),
		steps:        counter("steps_total", "Steps done by this process."),
		trajectories: counter("trajectories_total", "Trajectories trained on by this process."),
		tokens:       counter("tokens_total", "Tokens of the trajectories trained on by this process."),
		skipped:      counter("optimizer_steps_skipped_total", "Optimizer steps skipped because the gradient was not finite."),
		rejected: with.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_trainer_rejected_total", Help: "Messages not trained on, by reason, counted when that is decided: refused as at fault themselves, or, with incomplete and zero_variance, dropped with their group.",
		}, []string{"reason"}),
		refusals: with.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_trainer_refused_by_producer_total", Help: "Messages refused as at fault themselves, by the producer that their subject names; producers beyond the first 32 of a process count as (others).",
		}, []string{"producer"}),
		staleness: with.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_trainer_batch_staleness_versions", Buckets: []float64{0, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 32},
			Help: "Mean staleness of each batch: versions between a trajectory's oldest token and the trainer.",
		}),
		phases: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_trainer_phase_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
			Help: "Time of each phase of a step: wait, old_policy, update, save, publish.",
		}, []string{"phase"}),
		last: map[string]prometheus.Gauge{},
	}
	for _, group := range metrics.Groups() {
		for _, k := range group.Keys {
			if k.Gauge.Name != "" {
				m.last[k.Name] = gauge(k.Gauge.Name, k.Gauge.Help)
			}
		}
	}
	for _, reason := range schemas.Reasons() {
		m.rejected.WithLabelValues(string(reason))
	}
	m.refusals.WithLabelValues(streams.OtherProducers)
	for _, phase := range []string{"wait", "old_policy", "update", "save", "publish"} {
		m.phases.WithLabelValues(phase)
	}
	if registerer == nil {
		return m, nil
	}
	if err := registerer.Register(own); err != nil {
		return nil, fmt.Errorf("register trainer metrics: %w", err)
	}
	return m, nil
}

// recordStep takes over one step's report.
func (m *Metrics) recordStep(v map[string]float64, s *stats) {
	if m == nil {
		return
	}
	m.steps.Inc()
	m.trajectories.Add(v[metrics.BatchTrajectories.Name])
	m.tokens.Add(v[metrics.BatchTokens.Name])
	if s.learnt != nil {
		m.skipped.Add(float64(s.learnt.Skipped))
	}
	m.staleness.Observe(v[metrics.StalenessMean.Name])
	for phase, d := range s.phaseTimes() {
		m.phases.WithLabelValues(phase).Observe(d.Seconds())
	}
	for name, g := range m.last {
		if x, ok := v[name]; ok {
			g.Set(x)
		}
	}
}

func (m *Metrics) countDelivery() {
	if m != nil {
		m.deliveries.Inc()
	}
}

// countUnkept counts messages that were purged before they were kept.
func (m *Metrics) countUnkept(n uint64) {
	if m != nil {
		m.unkept.Add(float64(n))
	}
}

// setBehind shows how many messages the role weir archive has yet to keep.
func (m *Metrics) setBehind(n uint64) {
	if m != nil {
		m.behind.Set(float64(n))
	}
}

// setAwaited shows whether the run waits for the role weir archive.
func (m *Metrics) setAwaited(now bool) {
	switch {
	case m == nil:
	case now:
		m.awaited.Set(1)
	default:
		m.awaited.Set(0)
	}
}

func (m *Metrics) countAccepted() {
	if m != nil {
		m.taken.Inc()
	}
}

// countRejected counts messages that are not trained on.
func (m *Metrics) countRejected(reason schemas.Reason, n int) {
	if m != nil {
		m.rejected.WithLabelValues(string(reason)).Add(float64(n))
	}
}

// countProducerRefusals counts refused messages of a producer.
func (m *Metrics) countProducerRefusals(producer string, n int) {
	if m != nil {
		m.refusals.WithLabelValues(producer).Add(float64(n))
	}
}

// SetArchiveWaiting shows the size of the archive's segments that the bucket does not have yet. A nil Metrics shows nothing.
func (m *Metrics) SetArchiveWaiting(bytes int64) {
	if m != nil {
		m.spooled.Set(float64(bytes))
	}
}

// CountArchiveSent counts a try to put a segment into the archive's bucket. A nil Metrics counts nothing.
func (m *Metrics) CountArchiveSent(err error) {
	switch {
	case m == nil:
	case err != nil:
		m.unsent.Inc()
	default:
		m.sent.Inc()
	}
}
