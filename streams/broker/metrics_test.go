package broker_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Each metric that is described has a value at a broker with a run: one that the server no longer told would not be drawn at all.
func TestEachDescribedMetricHasAValue(t *testing.T) {
	t.Parallel()
	b := streamtest.Start(t)
	r := streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{Broker: b}))
	require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(1, 0)))
	collector := broker.NewMetrics(b)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	_, err := registry.Gather()
	require.NoError(t, err)

	descriptions, values := make(chan *prometheus.Desc, 100), make(chan prometheus.Metric, 10_000)
	collector.Describe(descriptions)
	close(descriptions)
	collector.Collect(values)
	close(values)
	told := map[*prometheus.Desc]bool{}
	for m := range values {
		told[m.Desc()] = true
	}
	n := 0
	for d := range descriptions {
		n++
		require.True(t, told[d], "no value of %s", d)
	}
	require.Len(t, told, n)
}
