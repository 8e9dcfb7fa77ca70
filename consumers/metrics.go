package consumers

import (
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weir-rl/weir/schemas"
)

// Metrics are the collectors of an inference consumer. Their names begin with weir_inference_.
type Metrics struct {
	// Of any Sampler.
	sampled                                   prometheus.Counter
	calls                                     *prometheus.CounterVec
	refused, swaps                            prometheus.Counter
	applied                                   prometheus.Gauge
	swapSeconds, fetchSeconds, prepareSeconds prometheus.Histogram
	// sampler is asked for the gauges of calls and slots; nil before Run has begun.
	sampler atomic.Pointer[Sampler]

	// Of a Pinned.
	pinned        prometheus.Counter
	pinnedVersion prometheus.Gauge

	servers ServerMetrics

	// Of a Batcher.
	prefilled, cacheHits, recomputed, evictions prometheus.Counter
	batchSize, batchTokens, stepSeconds         prometheus.Histogram
}

// NewMetrics makes the collectors and registers them; a nil Registerer registers none. It fails where they are registered
// already.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{}
	own := prometheus.NewRegistry()
	f := promauto.With(own)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "weir_inference_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: "weir_inference_" + name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return f.NewHistogram(prometheus.HistogramOpts{Name: "weir_inference_" + name, Help: help, Buckets: buckets})
	}
	load := func(name, help string, value func(Load) int) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_inference_" + name, Help: help}, func() float64 {
			if s := m.sampler.Load(); s != nil {
				return float64(value((*s).Load()))
			}
			return 0
		})
	}
	load("running", "Calls that are generating.", func(l Load) int { return l.Running })
	load("waiting", "Calls that wait for a slot.", func(l Load) int { return l.Waiting })
	load("idle_slots", "Slots that hold the cache of an episode with no call.", func(l Load) int { return l.Idle })
	m.sampled = counter("tokens_total", "Tokens sampled.")
	m.prefilled = counter("prefill_tokens_total", "Context tokens put through the model, not counting those sampled in the same call.")
	m.cacheHits = counter("cache_hit_tokens_total", "Context tokens found in the cache of an earlier call of the episode, or of another call that begins alike.")
	m.recomputed = counter("recomputed_tokens_total", "Cached tokens of running calls that a weight swap cleared.")
	m.evictions = counter("cache_evictions_total", "Idle episodes whose cache was given to another.")
	m.refused = counter("weights_refused_total", "Weight versions that were refused; the log says why.")
	m.swaps = counter("swaps_total", "Weight versions applied.")
	m.applied = gauge("applied_version", "Policy version in use; -1 before the first.")
	m.batchSize = histogram("batch_size", "Sequences in a step.", prometheus.ExponentialBuckets(1, 2, 11))
	m.batchTokens = histogram("batch_tokens", "Tokens put through the model in a step.",
		prometheus.ExponentialBuckets(1, 2, 14))
	m.stepSeconds = histogram("step_seconds", "Duration of a step.", prometheus.ExponentialBuckets(1e-5, 2, 20))
	m.swapSeconds = histogram("swap_seconds", "How long generation paused for a weight swap.",
		prometheus.ExponentialBuckets(1e-6, 4, 12))
	m.fetchSeconds = histogram("weights_fetch_seconds", "Fetching, verifying and decoding a weight version, while generation went on.",
		prometheus.ExponentialBuckets(1e-3, 4, 10))
	m.prepareSeconds = histogram("weights_prepare_seconds", "Checking a weight version and laying it out for the decoder, while generation went on.",
		prometheus.ExponentialBuckets(1e-4, 4, 10))
	m.calls = f.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_inference_calls_total", Help: "Calls ended, by why: stop_token, length, error or cancelled.",
	}, []string{"stop"})
	for _, stop := range []schemas.GenerateStop{schemas.GenerateStopToken, schemas.GenerateLength, schemas.GenerateError, cancelled} {
		m.calls.WithLabelValues(string(stop))
	}
	m.pinned = counter("pinned_tokens_total", "Tokens sampled for evaluation tickets, by the version that each names; tokens_total is without them.")
	m.pinnedVersion = gauge("pinned_version", "Policy version that is held beside the newest for evaluation tickets; -1 where none is.")
	m.servers = ServerMetrics{
		Fit:      gauge("servers", "Inference servers that take calls; 0 where this process samples by itself."),
		Restarts: counter("server_restarts_total", "Inference servers that were found unfit and started again."),
		Cut:      counter("cut_calls_total", "Calls that an inference server cut, at a swap for example; they went on with the tokens so far."),
		Failed:   counter("failed_calls_total", "Calls that failed at an inference server; they went on at another, and what the server said of them was dropped."),
	}
	vectors := m.servers.makeVectors()
	m.applied.Set(-1)
	m.pinnedVersion.Set(-1)
	if registerer == nil {
		return m, nil
	}
	for _, c := range append([]prometheus.Collector{own}, vectors...) {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register inference metrics: %w", err)
		}
	}
	return m, nil
}

// ForServers are the server collectors of m; a nil m has collectors that nobody reads.
func (m *Metrics) ForServers() *ServerMetrics { return &orUnseen(m).servers }

// cancelled is the stop of a call that its caller gave up.
const cancelled = "cancelled"

// orUnseen is m, or collectors that are registered nowhere.
func orUnseen(m *Metrics) *Metrics {
	if m == nil {
		m, _ = NewMetrics(nil) // nothing can be registered twice
	}
	return m
}
