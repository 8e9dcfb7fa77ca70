package broker

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// A server that had no processor for a millisecond is not taken for a server that has failed; a server that does not listen is.
func TestAServerThatLookedAtNothingIsNotBlamed(t *testing.T) {
	t.Parallel()
	require.True(t, isUnexamined("failed to be ready for connections after 1ms: "))
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1})
	require.NoError(t, err)
	t.Cleanup(s.Shutdown)
	var status server.HealthStatus
	require.Eventually(t, func() bool { // not started: it listens to nothing
		answer := &healthAnswer{header: http.Header{}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", http.NoBody)
		require.NoError(t, err)
		s.HandleHealthz(answer, request)
		require.NoError(t, json.Unmarshal(answer.body.Bytes(), &status))
		return !isUnexamined(status.Error)
	}, time.Minute, time.Millisecond)
	require.Equal(t, "failed to be ready for connections after 1ms: server", status.Error)
}
