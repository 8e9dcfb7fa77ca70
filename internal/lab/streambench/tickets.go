package streambench

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// TicketReport is how fast prompts become work and are ended, in tickets a second.
type TicketReport struct {
	// Issue stores tickets in order; Done takes a ticket, ends it and waits for the broker's answer, at as many producers as
	// publish.
	Issue harness.Spread `json:"issue_per_second"`
	Done  harness.Spread `json:"take_done_per_second"`
}

func measureTickets(ctx context.Context, config Config, run *streams.Run) (TicketReport, error) {
	source, err := run.Tickets(ctx, streams.TicketOptions{Producer: "bench"})
	if err != nil {
		return TicketReport{}, err
	}
	defer source.Close()
	var issued, done []float64
	for round := range config.Rounds {
		tickets := make([]*schemas.Ticket, config.Calls)
		for i := range tickets {
			tickets[i] = harness.Ticket(run.Name(), "bench", uint64(round), i, config.Calls, schemas.Limits{MaxTurns: 8, MaxTokens: 256})
		}
		begin := time.Now()
		if err := run.Issue(ctx, tickets...); err != nil {
			return TicketReport{}, err
		}
		middle := time.Now()
		work, working := errgroup.WithContext(ctx)
		for p := range config.Producers {
			work.Go(func() error {
				for i := p; i < config.Calls; i += config.Producers {
					lease, err := source.Take(working)
					if err != nil {
						return err
					}
					if err := lease.Done(working); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := work.Wait(); err != nil {
			return TicketReport{}, err
		}
		issued = append(issued, float64(config.Calls)/middle.Sub(begin).Seconds())
		done = append(done, float64(config.Calls)/time.Since(middle).Seconds())
	}
	return TicketReport{Issue: harness.SpreadOf(issued), Done: harness.SpreadOf(done)}, nil
}
