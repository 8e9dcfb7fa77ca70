package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// link is a network link that can be stalled: a relay between a role and the broker.
type link struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	open  chan struct{} // closed while bytes flow
	conns map[net.Conn]bool
	group sync.WaitGroup
}

func newLink(target string) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a link: %w", err)
	}
	flowing := make(chan struct{})
	close(flowing)
	return &link{listener: l, target: target, open: flowing, conns: map[net.Conn]bool{}}, nil
}

// url is where a role connects to instead of the broker.
func (l *link) url() string { return "nats://" + l.listener.Addr().String() }

// relayUntilEnd relays until ctx ends.
func (l *link) relayUntilEnd(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		_ = l.listener.Close() // it only ends Accept
		l.mu.Lock()
		defer l.mu.Unlock()
		for c := range l.conns {
			_ = c.Close() // it only ends the relays
		}
	})
	defer stop()
	for {
		near, err := l.listener.Accept()
		if err != nil {
			l.group.Wait()
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accept on a link: %w", err)
		}
		l.group.Go(func() { l.relayConnection(ctx, near) })
	}
}

func (l *link) relayConnection(ctx context.Context, near net.Conn) {
	defer near.Close()
	var d net.Dialer
	far, err := d.DialContext(ctx, "tcp", l.target)
	if err != nil {
		return // the role sees a connection that closes, as from a broker that is away
	}
	defer far.Close()
	l.mu.Lock()
	l.conns[near], l.conns[far] = true, true
	l.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			l.copyBytes(ctx, way[0], way[1])
			_ = way[0].Close() // ends the other way too
			_ = way[1].Close() // ends the other way too
		})
	}
	both.Wait()
	l.mu.Lock()
	delete(l.conns, near)
	delete(l.conns, far)
	l.mu.Unlock()
}

func (l *link) copyBytes(ctx context.Context, from io.Reader, to io.Writer) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-l.openGate():
		case <-ctx.Done():
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (l *link) openGate() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// stallFor holds every byte back for a while; nothing is lost, as with a link that is down for less than TCP gives up.
func (l *link) stallFor(ctx context.Context, d time.Duration) {
	l.mu.Lock()
	select {
	case <-l.open:
	default:
		l.mu.Unlock()
		return // stalled already
	}
	gate := make(chan struct{})
	l.open = gate
	l.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	close(gate)
}
