package streams

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
)

// Lease is the right to work on a ticket. It is kept alive until one of Done, Return and Refuse has succeeded;
// exactly one of them must be called.
type Lease struct {
	Ticket *schemas.Ticket
	// Delivery counts how often the ticket was handed out, this time included: 1 the first time.
	Delivery int

	source *TicketSource
	msg    jetstream.Msg
	from   origin
	lost   chan struct{}

	mu     sync.Mutex
	closed bool
	ended  chan struct{}
}

// Lost is closed when the broker has not been heard from for so long that the ticket may now be another
// producer's. Stop working on it then.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Done says that the ticket's trajectory, or a group-closed marker in its place, is published. It returns when
// the broker has confirmed that nobody else will get the ticket, and does so after Lost too: what is published
// stays published.
func (l *Lease) Done(ctx context.Context) error { return l.end(ctx, "+ACK") }

// Return gives the ticket back, to be handed out again after delay.
func (l *Lease) Return(ctx context.Context, delay time.Duration) error {
	if delay <= 0 {
		return l.end(ctx, "-NAK")
	}
	return l.end(ctx, fmt.Sprintf(`-NAK {"delay": %d}`, delay.Nanoseconds()))
}

// Refuse gives the ticket up for good: it goes to REJECTED with the reason. The producer must close its sample
// itself, by CloseGroup.
func (l *Lease) Refuse(ctx context.Context, detail string) error {
	if err := l.open(); err != nil {
		return err
	}
	if err := l.source.run.reject(ctx, l.from, ReasonRefused, detail, l.msg.Data()); err != nil {
		return err
	}
	return l.end(ctx, "+TERM "+string(ReasonRefused))
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
	if err := l.source.end(ctx, l.msg.Reply(), l.from.sequence, body); err != nil {
		return fmt.Errorf("end lease of %s: %w", l.Ticket.ID, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.ended)
		l.source.freeSlot()
	}
	return nil
}

// keep renews the lease, at a third of its length, until it is ended. The broker counts from when it hears a
// renewal, which is after we sent it: so the lease has surely not lapsed before sent + length.
func (l *Lease) keep(deadline time.Time) {
	interval := l.source.lease / 3
	next := interval
	for {
		select {
		case <-l.ended:
			return
		case <-l.source.life.Done():
			close(l.lost)
			return
		case <-time.After(min(next, time.Until(deadline))):
		}
		sent := time.Now()
		if sent.Before(deadline) && l.renew(min(interval, deadline.Sub(sent))) {
			deadline, next = sent.Add(l.source.lease), interval
			continue
		}
		next = interval / 4
		if !time.Now().Before(deadline) {
			select {
			case <-l.ended:
			default:
				l.source.log.Warn("lease lost: the broker was not heard from", "ticket", l.Ticket.ID)
				close(l.lost)
			}
			return
		}
	}
}

func (l *Lease) renew(timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(l.source.life, timeout)
	defer cancel()
	_, err := l.source.run.nc.RequestWithContext(ctx, l.msg.Reply(), []byte("+WPI"))
	return err == nil
}
