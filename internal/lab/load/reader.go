package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// batch is how many trajectories the reader acks and purges together.
const batch = 64

// readTrajectories is the trainer's work on the stream: it takes every trajectory, decoded, acks a batch and purges below it.
func readTrajectories(ctx context.Context, run *streams.Run, lag *tally) error {
	feed, err := run.Feed(ctx, streams.FeedOptions{Durable: "load", MaxPending: 8 * batch, Idle: time.Second})
	if err != nil {
		return err
	}
	defer feed.Close()
	var held []uint64
	settle := func() error {
		if len(held) == 0 {
			return nil
		}
		if err := feed.Ack(ctx, held...); err != nil {
			return err
		}
		last := held[len(held)-1]
		held = held[:0]
		return feed.Purge(ctx, last)
	}
	for {
		d, err := feed.Next(ctx)
		switch {
		case errors.Is(err, streams.ErrIdle):
			if err := settle(); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if d.Trajectory == nil {
			return fmt.Errorf("sequence %d is no trajectory: %+v", d.Sequence, d)
		}
		lag.addTime(time.Since(d.Trajectory.FinishedAt))
		if held = append(held, d.Sequence); len(held) == batch {
			if err := settle(); err != nil {
				return err
			}
		}
	}
}

// issueTickets keeps as many tickets outstanding as all slots have work for twice.
func issueTickets(ctx context.Context, run *streams.Run, slots int) error {
	const group = 8
	most := min(2*slots+group, run.Topology().MaxTickets)
	for cursor := uint64(0); ; {
		outstanding, err := run.OutstandingTickets(ctx)
		if err != nil {
			return err
		}
		var tickets []*schemas.Ticket
		for ; outstanding < most && len(tickets) < 512; outstanding += group {
			for sample := range group {
				tickets = append(tickets, harness.Ticket(run.Name(), "load", cursor, sample, group, schemas.Limits{MaxTurns: 64, MaxTokens: 1 << 16}))
			}
			cursor++
		}
		if len(tickets) == 0 {
			if err := harness.Wait(ctx, 50*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		if err := run.Issue(ctx, tickets...); err != nil {
			return err
		}
	}
}
