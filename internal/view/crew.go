package view

import (
	"context"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// crew follows who works on a run, for a page that looks again and again: each event is read once.
type crew struct {
	mu      sync.Mutex
	place   streams.EventsPlace
	told    *Streams // of the events alone
	workers workers
}

// look reads what is new and says who works on the run.
func (c *crew) look(ctx context.Context, run *streams.Run, now time.Time) (*Streams, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if c.told == nil {
			c.place, c.told, c.workers = streams.EventsPlace{}, newStreams(now), workers{}
		}
		read, err := run.EventsAfter(ctx, c.place, pastEvents, func(e *schemas.Event, stored time.Time) { c.told.tell(c.workers, e, stored) })
		if err != nil {
			c.told = nil // a part of it may have been read
			return nil, err
		}
		if read.Anew {
			c.told = nil
			continue
		}
		c.place = read.To
		return &Streams{clock: read.Now, done: c.told.done, Workers: c.workers.list(read.Now)}, nil
	}
}

// roles are the alarms about workers that stopped, of a run whose broker answers; none where the page may not see who works on it.
func (f *folder) roles(ctx context.Context, state string, now time.Time) []Alarm {
	run, err := f.live.get(ctx)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s, err := f.crew.look(ctx, run, now)
	if err != nil {
		return nil
	}
	if tickets, err := run.TicketCounts(ctx); err == nil {
		s.Tickets = &TicketsNow{tickets.Waiting, tickets.Leased, tickets.Takers, tickets.Redelivered}
	}
	return stopped(s, state)
}
