package streams_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
)

// greeter is a broker that says which version it is, and answers pings.
func greeter(t *testing.T, version string) (url string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(conn, "INFO {\"server_id\":\"A\",\"version\":%q,\"proto\":1,\"max_payload\":1048576,\"jetstream\":true,\"headers\":true}\r\n", version)
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "PING") {
					_, _ = conn.Write([]byte("PONG\r\n"))
				}
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-served })
	return "nats://" + listener.Addr().String()
}

// A server that is too old is refused at the connection, by its version, the least one and what to do; not later, by a request that
// it does not know.
func TestAServerThatIsTooOldIsRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for version, refused := range map[string]bool{
		"2.10.7": true, "2.14.9": true, "1.99.0": true, "2.15.0": false, "2.15.0-RC.1": false, "3.0.1": false, "": false, "edge": false,
	} {
		url := greeter(t, version)
		conn, err := streams.Connect(ctx, streams.ConnectConfig{URL: url}, nil)
		if !refused {
			require.NoError(t, err, version)
			conn.Close()
			continue
		}
		require.ErrorIs(t, err, streams.ErrServerTooOld)
		require.ErrorContains(t, err, "nats-server "+version)
		require.ErrorContains(t, err, streams.OldestServer)
		require.ErrorContains(t, err, url)
		require.ErrorContains(t, err, "weir broker")
		old := new(streams.ServerTooOldError)
		require.ErrorAs(t, err, &old)
		require.Equal(t, version, old.Version)
	}
}
