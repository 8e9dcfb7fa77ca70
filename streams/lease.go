package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
)

// Lease is the right to work on a ticket. It is kept alive until one of Done, Return and Release has succeeded, or has
// failed for a reason that trying again does not mend; exactly one of them must be called, unless the lease is lost. A
// call that failed because its context ended may be made again.
type Lease struct {
	Ticket *schemas.Ticket
	// Delivery counts how often the ticket was handed out to be worked on, this time included: 1 the first time. Those that
	// ended with Release are not counted.
	Delivery int

	source  *TicketSource
	msg     jetstream.Msg
	from    origin
	created time.Time // of the stream that the ticket came from
	handed  int       // how often the broker handed the ticket out
	lost    chan struct{}

	mu     sync.Mutex
	closed bool
	ended  chan struct{}
	// free gives the slot back, the first time that it is called.
	free func()
}

// Lost is closed when the broker has not been heard from for so long that the ticket may now be another
// producer's, when the ticket went with a stream that was made anew, or when the source has ended. Stop working on
// it then: the source may already have leased another ticket in its place.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Done says that the ticket's trajectory, or a group-closed marker in its place, is published. It returns when
// the broker has confirmed that nobody else will get the ticket, and does so after Lost too: what is published
// stays published.
func (l *Lease) Done(ctx context.Context) error { return l.end(ctx, "+ACK") }

// Return gives the ticket back, to be handed out again after delay. After Lost it does nothing: the ticket is not this
// lease's to give.
func (l *Lease) Return(ctx context.Context, delay time.Duration) error {
	select {
	case <-l.lost:
		return l.open()
	default:
	}
	if delay <= 0 {
		return l.end(ctx, "-NAK")
	}
	return l.end(ctx, fmt.Sprintf(`-NAK {"delay": %d}`, delay.Nanoseconds()))
}

// Release gives the ticket back like Return, where nothing was wrong with it: it does not count as a delivery. What is noted for
// that comes first: a ticket whose owner dies in between is tried once more often, never less.
func (l *Lease) Release(ctx context.Context, delay time.Duration) error {
	select {
	case <-l.lost:
		return l.open()
	default:
	}
	if err := l.open(); err != nil {
		return err
	}
	if err := l.source.run.release(ctx, l.from.subject, l.handed-l.Delivery+1); err != nil {
		l.source.log.Warn("a ticket given back unworked counts as a delivery", "ticket", l.Ticket.ID, "err", err)
	}
	return l.Return(ctx, delay)
}

func (l *Lease) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("end lease of %s: %w", l.Ticket.ID, ErrLeaseEnded)
	}
	return nil
}

func (l *Lease) end(ctx context.Context, body string) error {
	if err := l.open(); err != nil {
		return err
	}
	err := l.source.end(ctx, l.msg.Reply(), l.from.sequence, l.created, body)
	if err == nil || ctx.Err() == nil {
		l.close()
	}
	if err != nil {
		return fmt.Errorf("end lease of %s: %w", l.Ticket.ID, err)
	}
	return nil
}

// close ends the lease on this side: nothing renews it any more.
func (l *Lease) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.ended)
		l.free()
	}
}

// lose gives the lease up. The slot is free at once, for nobody need end a lost lease.
func (l *Lease) lose(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.source.log.Warn("lease lost", "why", why, "ticket", l.Ticket.ID)
	close(l.lost)
	l.free()
}

// keep renews the lease, at a third of its length, until it is ended. The broker counts from when it hears a
// renewal, which is after we sent it: so the lease has surely not lapsed before sent + length.
func (l *Lease) keep(deadline time.Time) {
	renewed := true
	for {
		length := l.source.length()
		next := length / 3
		if !renewed {
			next = length / 12
		}
		select {
		case <-l.ended:
			return
		case <-l.source.life.Done():
			l.lose("the source has ended")
			return
		case <-time.After(min(next, time.Until(deadline))):
		}
		sent := time.Now()
		if !sent.Before(deadline) {
			l.lose("the broker was not heard from")
			return
		}
		err := l.renew(min(length/3, deadline.Sub(sent)))
		if errors.Is(err, ErrStreamRecreated) {
			l.lose("the broker's tickets were made anew")
			return
		}
		if renewed = err == nil; renewed {
			deadline = sent.Add(length)
		}
	}
}

func (l *Lease) renew(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(l.source.life, timeout)
	defer cancel()
	if err := l.source.same(ctx, l.created); err != nil {
		return err
	}
	_, err := l.source.run.nc.RequestWithContext(ctx, l.msg.Reply(), []byte("+WPI"))
	return err
}
