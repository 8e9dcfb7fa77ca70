package broker

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
)

// collector reads the server's own counters whenever it is asked.
type collector struct {
	// broker is nil where only the descriptions are wanted.
	broker *Broker

	healthy, connections, slow, inMessages, outMessages, inBytes, outBytes *prometheus.Desc
	storeBytes, storeReserved, storeLimit, diskFree                        *prometheus.Desc
	messages, bytes, limitMessages, limitBytes, first, last, oldest        *prometheus.Desc
	pending, unacked, redelivered, pulls                                   *prometheus.Desc
}

// NewMetrics collects the counters of an embedded broker: its connections, its store, and each stream and
// consumer. A nil broker has descriptions and no values.
func NewMetrics(b *Broker) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("weir_broker_"+name, help, labels, nil)
	}
	return &collector{
		broker:      b,
		healthy:     desc("healthy", "1 while the broker stores what it is sent, else 0; the log and /readyz say why."),
		connections: desc("connections", "Clients connected, those of this process included."),
		slow:        desc("slow_consumers_total", "Clients cut off because they read too slowly."),
		inMessages:  desc("received_messages_total", "Messages received from clients."),
		outMessages: desc("sent_messages_total", "Messages sent to clients."),
		inBytes:     desc("received_bytes_total", "Bytes received from clients."),
		outBytes:    desc("sent_bytes_total", "Bytes sent to clients."),

		storeBytes:    desc("store_bytes", "Bytes that the streams hold on disk."),
		storeReserved: desc("store_reserved_bytes", "Bytes that the limits of the streams set aside."),
		storeLimit:    desc("store_limit_bytes", "Bytes that all streams together may hold."),
		diskFree:      desc("disk_free_bytes", "Bytes free on the disk of broker.store_dir."),

		messages:      desc("stream_messages", "Messages that a stream holds.", "stream"),
		bytes:         desc("stream_bytes", "Bytes that a stream holds.", "stream"),
		limitMessages: desc("stream_limit_messages", "Messages that a stream may hold; -1 is no bound.", "stream"),
		limitBytes:    desc("stream_limit_bytes", "Bytes that a stream may hold; -1 is no bound.", "stream"),
		first:         desc("stream_first_sequence", "Sequence of the oldest message that a stream holds.", "stream"),
		last:          desc("stream_last_sequence", "Sequence of the newest message that a stream was sent.", "stream"),
		oldest:        desc("stream_oldest_seconds", "Age of the oldest message that a stream holds, 0 where it holds none: of tickets, how long the longest has been under way.", "stream"),

		pending:     desc("consumer_pending", "Messages that a consumer has not been sent yet.", "stream", "consumer"),
		unacked:     desc("consumer_unacked", "Messages sent to a consumer and not acknowledged: of tickets, the leases.", "stream", "consumer"),
		redelivered: desc("consumer_redelivered", "Messages not acknowledged that were sent more than once.", "stream", "consumer"),
		pulls:       desc("consumer_waiting_pulls", "Requests that wait for a message: of tickets, producers with nothing to do.", "stream", "consumer"),
	}
}

// Describe implements prometheus.Collector.
func (m *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.healthy, m.connections, m.slow, m.inMessages, m.outMessages, m.inBytes, m.outBytes,
		m.storeBytes, m.storeReserved, m.storeLimit, m.diskFree,
		m.messages, m.bytes, m.limitMessages, m.limitBytes, m.first, m.last, m.oldest,
		m.pending, m.unacked, m.redelivered, m.pulls,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector. A figure that the server does not report at the moment is left out.
func (m *collector) Collect(to chan<- prometheus.Metric) {
	if m.broker == nil {
		return
	}
	gauge := func(d *prometheus.Desc, x float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
	}
	counter := func(d *prometheus.Desc, x float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, x)
	}
	healthy := 1.0
	if m.broker.Health() != nil {
		healthy = 0
	}
	gauge(m.healthy, healthy)
	if free, err := diskFree(m.broker.config.StoreDir); err == nil {
		gauge(m.diskFree, float64(free))
	}
	s := m.broker.server.Load()
	if v, err := s.Varz(nil); err == nil {
		gauge(m.connections, float64(v.Connections))
		counter(m.slow, float64(v.SlowConsumers))
		counter(m.inMessages, float64(v.InMsgs))
		counter(m.outMessages, float64(v.OutMsgs))
		counter(m.inBytes, float64(v.InBytes))
		counter(m.outBytes, float64(v.OutBytes))
	}
	j, err := s.Jsz(&server.JSzOptions{Accounts: true, Streams: true, Consumer: true, Config: true})
	if err != nil {
		return
	}
	gauge(m.storeBytes, float64(j.Store))
	gauge(m.storeReserved, float64(j.ReservedStore))
	gauge(m.storeLimit, float64(j.Config.MaxStore))
	for _, account := range j.AccountDetails {
		for _, stream := range account.Streams {
			m.collectStream(gauge, stream)
		}
	}
}

func (m *collector) collectStream(gauge func(*prometheus.Desc, float64, ...string), s server.StreamDetail) {
	gauge(m.messages, float64(s.State.Msgs), s.Name)
	gauge(m.bytes, float64(s.State.Bytes), s.Name)
	gauge(m.first, float64(s.State.FirstSeq), s.Name)
	gauge(m.last, float64(s.State.LastSeq), s.Name)
	age := 0.0
	if s.State.Msgs > 0 {
		age = max(0, time.Since(s.State.FirstTime).Seconds())
	}
	gauge(m.oldest, age, s.Name)
	if s.Config != nil {
		gauge(m.limitMessages, float64(s.Config.MaxMsgs), s.Name)
		gauge(m.limitBytes, float64(s.Config.MaxBytes), s.Name)
	}
	for _, c := range s.Consumer {
		if c.Config == nil || c.Config.Durable == "" {
			continue // a reader that comes and goes would be a new series each time
		}
		gauge(m.pending, float64(c.NumPending), s.Name, c.Name)
		gauge(m.unacked, float64(c.NumAckPending), s.Name, c.Name)
		gauge(m.redelivered, float64(c.NumRedelivered), s.Name, c.Name)
		gauge(m.pulls, float64(c.NumWaiting), s.Name, c.Name)
	}
}
