package streams_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams/internal/seam"
	"github.com/weir-rl/weir/streams/streamtest"
)

// A window may be larger than the client library's own bound on a subscription, 64 MiB, as with one processor, where a reader of shards has the
// whole of what a process may ask for: a reader that is slower than the broker loses no message of it.
func TestASlowReaderOfALargeWindowLosesNothing(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	var dropped atomic.Int64
	conn.NATS().SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) { dropped.Add(1) })
	run := streamtest.Open(t, conn)
	s := run.Seam()
	const messages, size = 80, 1<<20 - 4096
	_, err := s.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{Name: "BLOCKS", Subjects: []string{"blocks"}, AllowDirect: true})
	require.NoError(t, err)
	for range messages {
		_, err := s.JetStream().Publish(t.Context(), "blocks", make([]byte, size))
		require.NoError(t, err)
	}
	before, read := conn.NATS().Stats().InMsgs, 0
	_, more, err := s.Read(t.Context(), "BLOCKS", "blocks", 1, seam.Window{Messages: 1 << 10, Bytes: messages * size}, func(m seam.Message) error {
		if read++; read == 1 {
			require.Eventually(t, func() bool { return conn.NATS().Stats().InMsgs >= before+messages }, time.Minute, time.Millisecond)
		}
		return nil
	})
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, messages, read)
	require.Zero(t, dropped.Load())
}
