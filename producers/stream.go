package producers

import (
	"context"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// Stream is the part of the run's streams that a producer needs.
type Stream interface {
	// Take blocks until there is a ticket. Its lease renews itself until it ends.
	Take(ctx context.Context) (Lease, error)
	// Publish returns when the trajectory is stored; a full stream makes it wait.
	Publish(ctx context.Context, trajectory *schemas.Trajectory) error
	CloseGroup(ctx context.Context, closed *schemas.GroupClosed) error
	// FollowControl calls back with the current control and with every later control, until ctx ends.
	FollowControl(ctx context.Context, fn func(*schemas.Control)) error
}

// Lease is a taken ticket.
type Lease interface {
	Ticket() *schemas.Ticket
	// Delivery counts how often the ticket was taken, this time included, but for deliveries that ended with Release.
	Delivery() int
	// Done ends the lease: the ticket's work is stored.
	Done(ctx context.Context) error
	// Return ends the lease and lets somebody take the ticket again after a delay.
	Return(ctx context.Context, delay time.Duration) error
	// Release ends the lease like Return, where the ticket has not failed.
	Release(ctx context.Context, delay time.Duration) error
	// Lost is closed when the lease has lapsed: the ticket may be somebody else's.
	Lost() <-chan struct{}
}

// OnRun is the Stream of a run. The source must be closed by the caller, after [Run] has returned: leases end
// with it.
func OnRun(run *streams.Run, source *streams.TicketSource) Stream { return onRun{run, source} }

type onRun struct {
	*streams.Run
	source *streams.TicketSource
}

func (s onRun) Take(ctx context.Context) (Lease, error) {
	l, err := s.source.Take(ctx)
	if err != nil {
		return nil, err
	}
	return leased{l}, nil
}

type leased struct{ *streams.Lease }

func (l leased) Ticket() *schemas.Ticket { return l.Lease.Ticket }
func (l leased) Delivery() int           { return l.Lease.Delivery }
