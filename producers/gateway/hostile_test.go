package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/openai"
)

// oneConn is a listener of a single connection.
type oneConn struct {
	conns chan net.Conn
	gone  chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.gone:
		return nil, net.ErrClosed
	}
}
func (l *oneConn) Close() error   { close(l.gone); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// A client that asks and never reads the answer loses its connection: it does not hold its handler until the episode ends.
func TestAClientThatNeverReadsLosesItsConnection(t *testing.T) {
	t.Parallel()
	h := open(t, counting())
	h.writeWithin = 10 * time.Millisecond
	server := h.newHTTPServer()
	closed := make(chan struct{})
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(closed)
		}
	}
	client, served := net.Pipe() // a write waits until it is read
	l := &oneConn{make(chan net.Conn, 1), make(chan struct{})}
	l.conns <- served
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	body := chatOf("user", "a")
	_, err := fmt.Fprintf(client, "POST /e/%s/v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Length: %d\r\n\r\n%s", h.session.Key(), len(body), body)
	require.NoError(t, err)
	select {
	case <-closed:
	case <-time.After(minute):
		t.Error("the handler waits for its client")
	}
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-done, http.ErrServerClosed)
}

// What a session keeps of requests that came to nothing is bounded, however many an agent makes.
func TestRequestsThatCameToNothingAreForgotten(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"refused": openai.BadRequest("no", "no"), "left": context.Canceled} {
		s := newSession(t.Context(), spelling{}, &recorded{}, 100)
		for i := range 1000 {
			r := &request{maxTokens: i + 1}
			a := &asking{done: make(chan struct{})}
			s.asked[r.requestKey()] = append(s.asked[r.requestKey()], a)
			s.settleRequest(nil, r, a, nil, err)
		}
		require.LessOrEqual(t, len(s.asked), mostGivenUp, name)
		s.Close()
	}
}

// Finding M9: an agent posts an outcome where the policy could not be asked, as a program does that catches the error. The failure counts.
func TestAnOutcomeBesideAnEnginesFailureIsNone(t *testing.T) {
	t.Parallel()
	for range 64 { // Wait sees both at once
		s := newSession(t.Context(), spelling{}, &recorded{}, 100)
		broken := errors.New("no engine")
		s.settleRequest(nil, &request{}, &asking{done: make(chan struct{})}, nil, broken)
		_ = s.Finish(Outcome{Answer: "7"})
		_, err := s.Wait(t.Context(), 0)
		require.ErrorIs(t, err, broken)
		s.Close()
	}
}
