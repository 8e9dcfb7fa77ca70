package streams

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Between the look at the port and the server's own, somebody else may take it.
func TestABrokerThatCannotListenSaysSoAtOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	config := DefaultBrokerConfig()
	config.StoreDir, config.Listen = t.TempDir(), listener.Addr().String()
	lock, err := lockStore(config.StoreDir)
	require.NoError(t, err)
	t.Cleanup(lock.release)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout/2)
	defer cancel()
	_, err = startLocked(ctx, config, lock, nil)
	require.ErrorIs(t, err, ErrBroker)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, config.Listen)
	require.NoError(t, ctx.Err())
}
