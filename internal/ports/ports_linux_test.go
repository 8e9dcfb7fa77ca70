package ports

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A server may come and go at a reserved port. While it is away a call is refused, and nobody who asks for any port gets it.
func TestAReservedPortIsItsServersAlone(t *testing.T) {
	t.Parallel()
	port, err := Reserve()
	require.NoError(t, err)
	for range 3 {
		_, err := net.Dial("tcp", port.Address)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		l, err := net.Listen("tcp", port.Address)
		require.NoError(t, err)
		_, err = net.Listen("tcp", port.Address)
		require.ErrorIs(t, err, syscall.EADDRINUSE, "one server at a time")
		c, err := net.Dial("tcp", port.Address)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.NoError(t, l.Close())
	}
	// As many as a test machine may have open at once: each port that the kernel gives is another.
	for range 500 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		require.NotEqual(t, port.Address, l.Addr().String())
	}
	require.NoError(t, port.Release())
	_, err = net.Dial("tcp", port.Address)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}
