package streams

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFeedOptionsReportEveryFault(t *testing.T) {
	require.NoError(t, FeedOptions{Durable: "trainer"}.withDefaults().validateOptions())
	require.NoError(t, FeedOptions{Durable: "trainer", MaxPending: 1, AckWait: 100 * time.Millisecond}.validateOptions())
	err := FeedOptions{MaxPending: -1, AckWait: 99 * time.Millisecond, Durable: "a.b"}.validateOptions()
	for _, fault := range []string{"max_pending: -1", "ack_wait: 99ms", "durable"} {
		require.ErrorContains(t, err, fault)
	}
}
