package streams_test

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

func openBounded(t *testing.T, config broker.Config, change func(*streams.Topology)) (*streams.Run, jetstream.JetStream) {
	t.Helper()
	conn := streamtest.Connect(t, streams.ConnectConfig{Broker: streamtest.StartIn(t, config)})
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 8<<20, 8<<20
	change(&topology)
	r, err := conn.Open(t.Context(), "test", topology)
	require.NoError(t, err)
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	return r, js
}

// Defect S4: a key that may write events filled the broker's disk.
func TestEventsAreBounded(t *testing.T) {
	_, js := openBounded(t, streamtest.Config(t), func(c *streams.Topology) { c.EventsMaxBytes = 1 << 20 })
	for range 40 {
		_, err := js.Publish(t.Context(), "weir.test.events", make([]byte, 100_000))
		require.NoError(t, err, "a full stream of events takes the next")
	}
	stream, err := js.Stream(t.Context(), "WEIR_test_EVENTS")
	require.NoError(t, err)
	state := stream.CachedInfo().State
	require.LessOrEqual(t, state.Bytes, uint64(1<<20))
	require.EqualValues(t, 40, state.LastSeq, "the oldest go first")
	require.Greater(t, state.FirstSeq, uint64(1))
	_, err = js.Publish(t.Context(), "weir.test.events", make([]byte, 300_000))
	require.ErrorContains(t, err, "message size exceeds")
}

// Defect S4: the broker's disk was the only bound on the weights, and a full one was waited for in silence.
func TestFullShardsNameTheSetting(t *testing.T) {
	r, _ := openBounded(t, streamtest.Config(t), func(c *streams.Topology) { c.ShardsMaxBytes = 1 << 20 })
	m, shards := streamtest.Weights("test", 0, make([]byte, 500_000))
	require.NoError(t, streamtest.PublishWeights(t.Context(), r, m, shards))
	m, shards = streamtest.Weights("test", 1, bytes.Repeat([]byte{1}, 700_000))
	err := streamtest.PublishWeights(t.Context(), r, m, shards)
	require.ErrorIs(t, err, streams.ErrShardsFull)
	require.ErrorContains(t, err, "raise streams.shards_max_bytes")
	latest, err := r.LatestManifest(t.Context())
	require.NoError(t, err)
	require.Zero(t, latest.Version, "the version before stays whole")
	_, err = streamtest.Shard(t.Context(), r, latest.Shards[0])
	require.NoError(t, err)
}

// Defect S9: a manifest too large for the broker was found out when its shards were stored.
func TestAManifestThatTheBrokerDoesNotTakeStoresNothing(t *testing.T) {
	config := streamtest.Config(t)
	config.MaxPayload = 64 << 10
	r, js := openBounded(t, config, func(*streams.Topology) {})
	m, _ := streamtest.Weights("test", 0, nil)
	m.Shards = nil
	shards := map[string][]byte{}
	for i := range 600 {
		one, data := streamtest.Weights("test", 0, []byte(fmt.Sprint(i)))
		m.Shards = append(m.Shards, one.Shards[0])
		maps.Copy(shards, data)
	}
	err := streamtest.PublishWeights(t.Context(), r, m, shards)
	require.ErrorIs(t, err, streams.ErrTooLarge)
	require.ErrorIs(t, r.ManifestFits(m), streams.ErrTooLarge)
	for _, says := range []string{"600 shards", "trainer.publish.shard_bytes", "broker.max_payload"} {
		require.ErrorContains(t, err, says)
	}
	stream, err := js.Stream(t.Context(), "OBJ_WEIR_test_SHARDS")
	require.NoError(t, err)
	require.Zero(t, stream.CachedInfo().State.Msgs)
	m.Shards = m.Shards[:100]
	require.NoError(t, r.ManifestFits(m))
}

func TestTopologyBoundsAreChecked(t *testing.T) {
	topology := streams.DefaultTopology()
	topology.EventsMaxBytes, topology.ShardsMaxBytes = -1, -1
	err := topology.Validate()
	require.ErrorContains(t, err, "events_max_bytes: -1")
	require.ErrorContains(t, err, "shards_max_bytes: -1")
}

// An event as the trainer emits it after a step, with every measure, is far below the bound of one event.
func TestAnEventOfManyMeasuresIsTaken(t *testing.T) {
	r, _ := openBounded(t, streamtest.Config(t), func(*streams.Topology) {})
	metrics := map[string]float64{}
	for i := range 1000 {
		metrics[strings.Repeat("m", 60)+fmt.Sprint(i)] = float64(i)
	}
	require.NoError(t, r.Emit(t.Context(), &schemas.Event{Run: "test", Type: schemas.EventWorkerJoined, Role: "trainer", Metrics: metrics}))
}
