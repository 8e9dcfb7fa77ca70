package streams_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// However many producers ask at once, the run has one secret; another run has another.
func TestTheProducersOfARunShareASecret(t *testing.T) {
	b := streamtest.Start(t)
	conn := streamtest.Connect(t, streams.ConnectConfig{Broker: b})
	run := streamtest.Open(t, conn)
	secrets := make([][]byte, 8)
	var all sync.WaitGroup
	for i := range secrets {
		mine, err := streamtest.Connect(t, streams.ConnectConfig{Broker: b}).Attach(t.Context(), "test")
		require.NoError(t, err)
		all.Go(func() { secrets[i], _ = mine.AgentSecret(t.Context()) })
	}
	all.Wait()
	for _, s := range secrets {
		require.Len(t, s, 32)
		require.Equal(t, secrets[0], s)
	}
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 256<<20, 32<<20
	other, err := conn.Open(t.Context(), "other", topology)
	require.NoError(t, err)
	secret, err := other.AgentSecret(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, secrets[0], secret)
	again, err := run.AgentSecret(t.Context())
	require.NoError(t, err)
	require.Equal(t, secrets[0], again)
}
