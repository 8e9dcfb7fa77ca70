package streams

import "context"

// Counts are how many messages a run's streams hold.
type Counts struct {
	// Tickets are issued and not done, leased ones included.
	Tickets int
	// Trajectories are stored and not purged; Rejected are refused and not yet too old.
	Trajectories, Rejected int
}

// Counts reads them from the broker.
func (r *Run) Counts(ctx context.Context) (Counts, error) {
	var c Counts
	for stream, n := range map[string]*int{
		r.names.tickets: &c.Tickets, r.names.trajectories: &c.Trajectories, r.names.rejected: &c.Rejected,
	} {
		err := r.call(ctx, "count messages of "+stream, stream, func(ctx context.Context) error {
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
