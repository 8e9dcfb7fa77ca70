package runfolder

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

const (
	// pastEvents is how many of the newest events the page reads.
	pastEvents = 3000
	// shownEvents is how many of them it shows, shownActs how many events by operators it shows.
	shownEvents = 60
	shownActs   = 10
)

// Events are a run's newest events, and the run's workers by them.
type Events struct {
	// History is the trainer's part of the events.
	History History

	all     *Streams // Events, Acts and Counts, the oldest first, and Done
	workers workers
}

// NewEvents has none.
func NewEvents(now time.Time) *Events { return &Events{all: newStreams(now), workers: workers{}} }

// Add takes in an event that the broker stored at a time.
func (v *Events) Add(e *schemas.Event, stored time.Time) {
	s := v.all
	s.Counts[string(e.Type)]++
	v.History.Add(e)
	if e.Role != RoleOperator {
		v.workers.addEvent(e, stored)
	}
	if e.Type == schemas.EventWorkerHere {
		return // the list of workers has it
	}
	text := e.Message
	if text == "" && len(e.Metrics) > 0 {
		text = report.EventText(e)
	}
	now := EventNow{e.At, string(e.Type), e.Role, e.Worker, e.Step, e.PolicyVersion, text}
	s.Events = appendEvent(s.Events, now, shownEvents)
	if e.Role == RoleOperator {
		s.Acts = appendEvent(s.Acts, now, shownActs)
	}
	s.Done = v.History.state == StateFinished
}

// appendEvent appends an event and keeps the newest so many.
func appendEvent(events []EventNow, e EventNow, most int) []EventNow {
	if len(events) == most {
		events = events[1:]
	}
	return append(events, e)
}

// Streams returns the workers and the newest events at an instant of the broker's clock.
func (v *Events) Streams(clock time.Time) *Streams {
	out := *v.all
	out.Clock, out.Workers, out.Failures = clock, v.workers.listWorkers(clock), v.History.Failures()
	out.Events, out.Acts = slices.Clone(out.Events), slices.Clone(out.Acts)
	slices.Reverse(out.Events)
	slices.Reverse(out.Acts)
	return &out
}

// crew follows a run's events for a page that asks again and again: each event is read once.
type crew struct {
	mu     sync.Mutex
	place  streams.EventsPlace
	events *Events // nil before the first reading
}

// read reads the events that came since the reading before, and returns the workers and the trainer's history.
func (c *crew) read(ctx context.Context, run *streams.Run, now time.Time) (*Streams, History, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if c.events == nil {
			c.place, c.events = streams.EventsPlace{}, NewEvents(now)
		}
		read, err := run.EventsAfter(ctx, c.place, pastEvents, c.events.Add)
		if err != nil {
			c.events = nil // a part of the events may have been read
			return nil, History{}, err
		}
		if read.Anew {
			c.events = nil
			continue
		}
		c.place = read.To
		seen := c.events.Streams(read.Now)
		history := c.events.History
		history.failures = history.failures.Clone() // the next reading changes it
		return &Streams{Clock: seen.Clock, Done: seen.Done, Workers: seen.Workers, Failures: seen.Failures}, history, nil
	}
}
