package servers_test

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers/servers"
)

// Finding of a run with a real vLLM: uvicorn answers a request whose handler raised with 500, and then resets the connection: the next request on
// it, such as the load that mends a failed load, was lost.
func TestARequestAfterAServersErrorHasAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- serveFailures(l) }()
	remote := servers.NewRemote("http://"+l.Addr().String(), "", "")
	for range 3 {
		require.Equal(t, http.StatusInternalServerError, servers.Status(remote.Post(t.Context(), "/collective_rpc", nil, nil)))
	}
	remote.Close()
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-served, net.ErrClosed)
}

// serveFailures answers the first request of each connection with 500, and closes the connection when it is asked again.
func serveFailures(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		in := bufio.NewReader(conn)
		_, err = http.ReadRequest(in)
		if err == nil {
			_, err = conn.Write([]byte("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}"))
		}
		_, again := in.ReadByte() // of the next request, or the end
		if err = errors.Join(err, conn.Close()); err != nil {
			return errors.Join(err, again)
		}
	}
}
