package streams_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams/streamtest"
)

// A broker that is killed while it makes the ticket stream leaves the stream without its checksum; then whatever was stored in
// it was gone at each later start.
func TestAStreamThatWasNotMadeWholeIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := newLasting(t)
	openWithLease(t, b.connect(t), time.Minute)
	b.broker.Shutdown()
	require.NoError(t, os.Remove(filepath.Join(b.config.StoreDir, "jetstream", "$G", "streams", "WEIR_test_TICKETS", "meta.sum")))
	b.start(t)
	r := openWithLease(t, b.connect(t), time.Minute)
	require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(1, 0)))
	b.broker.Shutdown()
	b.start(t)
	counts, err := r.Counts(within(t))
	require.NoError(t, err)
	require.Equal(t, 1, counts.Tickets)
}
