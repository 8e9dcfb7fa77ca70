package deploy_test

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// line is a long line from a site to a broker: a relay that delays what passes and breaks its connections. The kernel's own
// emulation of delay and loss is not everywhere; loss is shown to TCP's users as delay and as connections that break, and this does both.
type line struct {
	listener net.Listener
	to       string
	up, down atomic.Int64
	// life is until a connection breaks by itself, half of it at least.
	life time.Duration

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
	group sync.WaitGroup
}

// The delay of each way is drawn anew for each read: 25 to 100 ms, so that what goes and comes back takes 50 to 200.
const (
	leastDelay = 25 * time.Millisecond
	mostDelay  = 100 * time.Millisecond
)

func newLine(t *testing.T, address, to string, life time.Duration) *line {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	l := &line{listener: listener, to: to, life: life, conns: make(map[net.Conn]bool)}
	l.group.Go(l.accept)
	t.Cleanup(func() {
		_ = listener.Close() // it only ends accept
		l.setCut(true)
		l.group.Wait()
	})
	return l
}

func (l *line) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.group.Go(func() { l.relay(near) })
	}
}

// setCut breaks the connections that there are, and those that come, until it is taken back.
func (l *line) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for c := range l.conns {
		_ = c.Close() // it only ends the relays
	}
}

// enter is whether the line holds.
func (l *line) enter(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return false
	}
	for _, c := range conns {
		l.conns[c] = true
	}
	return true
}

func (l *line) relay(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", l.to)
	if err != nil {
		return // the site sees a connection that closes
	}
	defer far.Close()
	if !l.enter(near, far) {
		return
	}
	end := func() {
		_ = near.Close() // ends both ways
		_ = far.Close()  // ends both ways
	}
	broken := time.AfterFunc(l.life/2+rand.N(l.life), end)
	defer broken.Stop()
	var ways sync.WaitGroup
	ways.Go(func() { pass(near, far, &l.up); end() })
	ways.Go(func() { pass(far, near, &l.down); end() })
	ways.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, near)
	delete(l.conns, far)
}

// pass moves bytes on, in order, each later than it came; what is on its way when a connection breaks is lost.
func pass(from, to net.Conn, count *atomic.Int64) {
	type piece struct {
		data []byte
		due  time.Time
	}
	ctx, stop := context.WithCancel(context.Background())
	way := make(chan piece, 64) // a full line slows its source
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(way)
		for {
			buf := make([]byte, 64<<10)
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			select {
			case way <- piece{buf[:n], time.Now().Add(leastDelay + rand.N(mostDelay-leastDelay))}:
			case <-ctx.Done():
				return
			}
		}
	})
	for p := range way {
		<-time.After(time.Until(p.due)) // a clock is what a line is
		n, err := to.Write(p.data)
		count.Add(int64(n))
		if err != nil {
			break
		}
	}
	stop()
	_ = from.Close() // ends the reader
	reader.Wait()
}
