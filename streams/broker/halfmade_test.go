package broker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

// A broker that is killed while it makes the ticket stream leaves the stream without its checksum; then whatever was stored in
// it was gone at each later start.
func TestAStreamThatWasNotMadeWholeIsMadeAgain(t *testing.T) {
	t.Parallel()
	config := streamtest.Config(t)
	start := func() (*broker.Broker, *streams.Run) {
		b := streamtest.StartIn(t, config)
		return b, streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{Broker: b}))
	}
	b, _ := start()
	b.Shutdown()
	require.NoError(t, os.Remove(filepath.Join(config.StoreDir, "jetstream", "$G", "streams", "WEIR_test_TICKETS", "meta.sum")))
	b, r := start()
	require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(1, 0)))
	b.Shutdown()
	_, r = start()
	counts, err := r.Counts(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, counts.Tickets)
}
