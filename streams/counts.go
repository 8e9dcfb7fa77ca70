package streams

import (
	"context"
	"time"
)

// Counts are how many messages a run's streams hold.
type Counts struct {
	// Tickets are issued and not done, leased tickets included.
	Tickets int
	// Trajectories are stored and not purged; Rejected are refused and not yet too old.
	Trajectories, Rejected int
}

// TicketCounts say where a run's outstanding tickets are.
type TicketCounts struct {
	// Waiting tickets are at no producer. Leased tickets are being worked on, or were by a producer that has died.
	Waiting, Leased int
	// Takers are requests of producers that wait for a ticket, at most a few of each producer.
	Takers int
	// Redelivered are the leased tickets that were leased before and came back.
	Redelivered int
}

// TicketCounts reads them from the broker.
func (r *Run) TicketCounts(ctx context.Context) (c TicketCounts, err error) {
	err = r.callBroker(ctx, "count tickets", r.names.tickets, func(ctx context.Context) error {
		consumer, err := r.js.Consumer(ctx, r.names.tickets, durableProducers)
		if err != nil {
			return err
		}
		info := consumer.CachedInfo()
		c = TicketCounts{Waiting: int(info.NumPending), Leased: info.NumAckPending, Takers: info.NumWaiting, Redelivered: info.NumRedelivered}
		return nil
	})
	return c, err
}

// OldestTicket is when the oldest ticket that is not done was issued; the zero time where there is none.
func (r *Run) OldestTicket(ctx context.Context) (at time.Time, err error) {
	err = r.callBroker(ctx, "look for the oldest ticket", r.names.tickets, func(ctx context.Context) error {
		s, err := r.js.Stream(ctx, r.names.tickets)
		if err == nil && s.CachedInfo().State.Msgs > 0 {
			at = s.CachedInfo().State.FirstTime
		}
		return err
	})
	return at, err
}

// Counts reads them from the broker.
func (r *Run) Counts(ctx context.Context) (Counts, error) {
	var c Counts
	for stream, n := range map[string]*int{
		r.names.tickets: &c.Tickets, r.names.trajectories: &c.Trajectories, r.names.rejected: &c.Rejected,
	} {
		err := r.callBroker(ctx, "count messages of "+stream, stream, func(ctx context.Context) error {
			s, err := r.js.Stream(ctx, stream)
			if err == nil {
				*n = int(s.CachedInfo().State.Msgs)
			}
			return err
		})
		if err != nil {
			return Counts{}, err
		}
	}
	return c, nil
}
