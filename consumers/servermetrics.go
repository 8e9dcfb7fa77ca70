package consumers

import "github.com/prometheus/client_golang/prometheus"

// ServerMetrics are the collectors of a Sampler over inference servers.
type ServerMetrics struct {
	// Fit is how many servers take calls.
	Fit prometheus.Gauge
	// Restarts counts servers that were started again, Cut calls that a server cut, Failed calls that failed at a server.
	Restarts, Cut, Failed prometheus.Counter
	// WeightChecks counts verified loads by result: right, stale or unknown.
	WeightChecks *prometheus.CounterVec
	// Loads counts versions that running servers have loaded, by place and by the reason why it was not shared memory.
	Loads *prometheus.CounterVec
	// Queue, CacheUse and Preemptions are a server's own metrics, by server.
	Queue, CacheUse, Preemptions *prometheus.GaugeVec
	// MaxTokens is the longest sequence that a server takes, by server.
	MaxTokens *prometheus.GaugeVec
	// Ends and EndsExpected count stop tokens that were sampled and that were to be expected, by server; EndsDeviation is their
	// difference in standard deviations.
	Ends, EndsExpected *prometheus.CounterVec
	EndsDeviation      *prometheus.GaugeVec
}

// Forget takes away the gauges of a server that is down. Its counters stay.
func (m *ServerMetrics) Forget(server string) {
	m.ForgetLoad(server)
	for _, g := range []*prometheus.GaugeVec{m.MaxTokens, m.EndsDeviation} {
		g.DeletePartialMatch(prometheus.Labels{"server": server})
	}
}

// ForgetLoad takes away a server's own metrics, as where it has given none.
func (m *ServerMetrics) ForgetLoad(server string) {
	for _, g := range []*prometheus.GaugeVec{m.Queue, m.CacheUse, m.Preemptions} {
		g.DeletePartialMatch(prometheus.Labels{"server": server})
	}
}

// ForgetEnds takes away the counters of a server that is gone, which may have been one of many.
func (m *ServerMetrics) ForgetEnds(server string) {
	for _, c := range []*prometheus.CounterVec{m.Ends, m.EndsExpected} {
		c.DeletePartialMatch(prometheus.Labels{"server": server})
	}
}

// makeVectors makes the collectors with a label, and lists them.
func (m *ServerMetrics) makeVectors() []prometheus.Collector {
	m.WeightChecks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_inference_weight_checks_total",
		Help: "Loads that were verified at an inference server: right, stale where it kept tensors of the version before, " +
			"or unknown where it cannot be told.",
	}, []string{"result"})
	m.Loads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_inference_server_loads_total",
		Help: "Versions that a running inference server has loaded, from memory or folder, and why from a folder: off, " +
			"plugin (none, or it takes nothing), place (not in shared memory), stage (the server cannot take this version) or load (that failed).",
	}, []string{"from", "reason"})
	m.Queue = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_inference_server_calls", Help: "Calls at an inference server, of all its users, as it tells: running or waiting.",
	}, []string{"server", "state"})
	m.CacheUse = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_inference_server_cache_use", Help: "Share of an inference server's cache of keys and values that is taken, as it tells.",
	}, []string{"server"})
	m.Preemptions = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_inference_server_preemptions", Help: "Calls that an inference server put back for want of cache since its start, as it tells.",
	}, []string{"server"})
	m.MaxTokens = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_inference_server_max_tokens",
		Help: "Longest sequence that an inference server takes, in tokens: as it reports, or less where an answer ended before.",
	}, []string{"server"})
	m.Ends = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_inference_server_ends_total", Help: "Sampled stop tokens, in the calls at an inference server whose ends are watched.",
	}, []string{"server"})
	m.EndsExpected = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_inference_server_ends_expected_total", Help: "Stop tokens that the probabilities of these calls' tokens predict.",
	}, []string{"server"})
	m.EndsDeviation = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_inference_server_ends_deviation", Help: "Difference of both, in standard deviations: beyond 5 the server's ends are biased.",
	}, []string{"server"})
	return []prometheus.Collector{
		m.WeightChecks, m.Loads, m.Queue, m.CacheUse, m.Preemptions, m.MaxTokens, m.Ends, m.EndsExpected, m.EndsDeviation,
	}
}
