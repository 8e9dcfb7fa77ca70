package streamtest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Line is a relay to an address that delays all bytes, each way by delay, and keeps their order. It returns the address to connect
// to, on loopback, and ends with the test. 0 is a relay without delay.
func Line(tb testing.TB, to string, delay time.Duration) string {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	life, end := context.WithCancel(context.Background())
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { relayConn(life, near, to, delay) })
		}
	})
	tb.Cleanup(func() {
		end()
		_ = listener.Close() // it only ends the loop
		relays.Wait()
	})
	return listener.Addr().String()
}

func relayConn(life context.Context, near net.Conn, to string, delay time.Duration) {
	far, err := new(net.Dialer).DialContext(life, "tcp", to)
	if err != nil {
		_ = near.Close() // the client sees a connection that closes
		return
	}
	hangUp := sync.OnceFunc(func() {
		_ = near.Close() // ends both ways
		_ = far.Close()  // ends both ways
	})
	defer context.AfterFunc(life, hangUp)()
	var ways sync.WaitGroup
	ways.Go(func() { carryBytes(near, far, delay, hangUp) })
	ways.Go(func() { carryBytes(far, near, delay, hangUp) })
	ways.Wait()
}

// carryBytes moves bytes on, each piece delay after it came.
func carryBytes(from, to net.Conn, delay time.Duration, hangUp func()) {
	type piece struct {
		data []byte
		due  time.Time
	}
	way := make(chan piece, 4096)
	var writer sync.WaitGroup
	writer.Go(func() {
		for p := range way {
			<-time.After(time.Until(p.due)) // a clock is what a line is
			if _, err := to.Write(p.data); err != nil {
				hangUp()
			}
		}
	})
	for {
		buf := make([]byte, 64<<10)
		n, err := from.Read(buf)
		if err != nil {
			break
		}
		way <- piece{buf[:n], time.Now().Add(delay)}
	}
	close(way)
	writer.Wait()
	hangUp()
}
