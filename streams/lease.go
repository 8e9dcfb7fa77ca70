package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/schemas"
)

// Lease is the right to work on a ticket. It is renewed until Done, Return or Release has succeeded, or has failed for a reason that
// another try does not mend. Exactly one of the three must be called, unless the lease is lost. A call that failed because its
// context ended may be made again.
type Lease struct {
	Ticket *schemas.Ticket
	// Delivery counts the deliveries of the ticket, this delivery included: 1 the first time. Deliveries that ended with Release
	// are not counted.
	Delivery int

	source  *TicketSource
	msg     *nats.Msg
	from    origin
	created time.Time // of the stream that the ticket came from
	sent    int       // how often the broker delivered the ticket, released deliveries included
	lost    chan struct{}

	mu     sync.Mutex
	closed bool
	ended  chan struct{}
	// free gives the slot back, the first time that it is called.
	free func()
}

// Lost is closed when no renewal was answered for so long that another producer may now have the ticket, when the ticket's stream was
// made anew, or when the source has ended. Stop the work on the ticket then: the source may already have leased another ticket in
// its place.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Done ends the ticket: its trajectory, or a group-closed marker in its place, is published. It returns when the broker has confirmed
// that no other producer will get the ticket. It works after Lost too, since a published trajectory stays published.
func (l *Lease) Done(ctx context.Context) error {
	err := l.endLease(ctx, ackDone)
	if err == nil && l.sent > l.Delivery {
		l.source.run.dropReleased(ctx, l.from.subject)
	}
	return err
}

// Return gives the ticket back, to be delivered again after delay. After Lost it does nothing: the ticket may be another producer's.
func (l *Lease) Return(ctx context.Context, delay time.Duration) error {
	select {
	case <-l.lost:
		return l.checkOpen()
	default:
	}
	return l.endLease(ctx, ackNakAfter(delay))
}

// Release gives the ticket back like Return, and its delivery is not counted: nothing was wrong with the ticket. The count is
// corrected before the ticket goes back, so that a ticket whose producer dies in between is tried once more, and never once less.
func (l *Lease) Release(ctx context.Context, delay time.Duration) error {
	select {
	case <-l.lost:
		return l.checkOpen()
	default:
	}
	if err := l.checkOpen(); err != nil {
		return err
	}
	if err := l.source.run.storeReleased(ctx, l.from.subject, l.sent-l.Delivery+1); err != nil {
		l.source.log.Warn("a ticket given back unworked counts as a delivery", "ticket", l.Ticket.ID, "err", err)
	}
	return l.Return(ctx, delay)
}

// Deliveries counts the deliveries of the ticket by the broker, this delivery and released deliveries included.
func (l *Lease) Deliveries() int { return l.sent }

// Forgive has the deliveries before this one not be counted: the ticket has not failed, for its journal shows that the episode went on at
// its producers.
func (l *Lease) Forgive(ctx context.Context) error {
	if err := l.checkOpen(); err != nil || l.Delivery <= 1 {
		return err
	}
	if err := l.source.run.storeReleased(ctx, l.from.subject, l.sent-1); err != nil {
		return fmt.Errorf("forgive the deliveries of %s: %w", l.Ticket.ID, err)
	}
	l.Delivery = 1
	return nil
}

func (l *Lease) checkOpen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("end lease of %s: %w", l.Ticket.ID, ErrLeaseEnded)
	}
	return nil
}

func (l *Lease) endLease(ctx context.Context, w ackKind) error {
	if err := l.checkOpen(); err != nil {
		return err
	}
	err := l.source.endTicket(ctx, l.msg.Reply, l.from.sequence, l.created, w)
	if err == nil || ctx.Err() == nil {
		l.closeLease()
	}
	if err != nil {
		return fmt.Errorf("end lease of %s: %w", l.Ticket.ID, err)
	}
	return nil
}

// closeLease ends the lease on this side: it is no longer renewed.
func (l *Lease) closeLease() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.ended)
		l.free()
	}
}

// loseLease gives the lease up. Its slot is free at once, since nobody need end a lost lease.
func (l *Lease) loseLease(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.source.log.Warn("lease lost", "why", why, "ticket", l.Ticket.ID)
	close(l.lost)
	l.free()
}

// keepLease renews the lease, every third of its length, until the lease ends. The broker counts from when it receives a renewal, which
// is after the renewal was sent: so the lease has not lapsed before sent + length.
func (l *Lease) keepLease(deadline time.Time) {
	renewed := true
	for {
		length := l.source.leaseLength()
		next := length / 3
		if !renewed {
			next = length / 12
		}
		select {
		case <-l.ended:
			return
		case <-l.source.life.Done():
			l.loseLease("the source has ended")
			return
		case <-time.After(min(next, time.Until(deadline))):
		}
		sent := time.Now()
		if !sent.Before(deadline) {
			l.loseLease("the broker answered no renewal")
			return
		}
		err := l.renewLease(min(length/3, deadline.Sub(sent)))
		if errors.Is(err, ErrStreamRecreated) {
			l.loseLease("the broker's tickets were made anew")
			return
		}
		if renewed = err == nil; renewed {
			deadline = sent.Add(length)
		}
	}
}

func (l *Lease) renewLease(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(l.source.life, timeout)
	defer cancel()
	if err := l.source.checkSameStream(ctx, l.created); err != nil {
		return err
	}
	_, err := l.source.run.nc.RequestWithContext(ctx, l.msg.Reply, []byte(ackWorking))
	return err
}
