package consumers

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are what an inference consumer counts.
type Metrics struct {
	sampled, prefilled, cacheHits, recomputed, evictions prometheus.Counter
	running, waiting, idle, applied                      prometheus.Gauge
	batchSize, batchTokens, stepSeconds                  prometheus.Histogram
	swapSeconds, fetchSeconds, prepareSeconds            prometheus.Histogram
	calls                                                *prometheus.CounterVec
	refused                                              prometheus.Counter
	swaps                                                prometheus.Counter
}

// NewMetrics registers the metrics; a nil Registerer registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "weir_inference_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: "weir_inference_" + name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return f.NewHistogram(prometheus.HistogramOpts{Name: "weir_inference_" + name, Help: help, Buckets: buckets})
	}
	m := &Metrics{
		sampled:    counter("tokens_total", "Tokens sampled."),
		prefilled:  counter("prefill_tokens_total", "Context tokens put through the model, not counting those sampled in the same call."),
		cacheHits:  counter("cache_hit_tokens_total", "Context tokens found in the cache of an earlier call of the episode."),
		recomputed: counter("recomputed_tokens_total", "Cached tokens of running calls that a weight swap cleared."),
		evictions:  counter("cache_evictions_total", "Idle episodes whose cache was given to another."),
		refused:    counter("weights_refused_total", "Weight versions that were refused; the log says why."),
		swaps:      counter("swaps_total", "Weight versions applied."),
		running:    gauge("running", "Calls that are generating."),
		waiting:    gauge("waiting", "Calls that wait for a slot."),
		idle:       gauge("idle_slots", "Slots that hold the cache of an episode with no call."),
		applied:    gauge("applied_version", "Policy version in use; -1 before the first."),
		batchSize:  histogram("batch_size", "Sequences in a step.", prometheus.ExponentialBuckets(1, 2, 11)),
		batchTokens: histogram("batch_tokens", "Tokens put through the model in a step.",
			prometheus.ExponentialBuckets(1, 2, 14)),
		stepSeconds: histogram("step_seconds", "Duration of a step.", prometheus.ExponentialBuckets(1e-5, 2, 20)),
		swapSeconds: histogram("swap_seconds", "How long generation paused for a weight swap.",
			prometheus.ExponentialBuckets(1e-6, 4, 12)),
		fetchSeconds: histogram("weights_fetch_seconds", "Fetching, verifying and decoding a weight version, while generation went on.",
			prometheus.ExponentialBuckets(1e-3, 4, 10)),
		prepareSeconds: histogram("weights_prepare_seconds", "Checking a weight version and laying it out for the decoder, while generation went on.",
			prometheus.ExponentialBuckets(1e-4, 4, 10)),
		calls: f.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_inference_calls_total", Help: "Calls ended, by why: stop_token, length, error or cancelled.",
		}, []string{"stop"}),
	}
	m.applied.Set(-1)
	return m
}
