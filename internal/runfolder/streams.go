package runfolder

import (
	"context"
	"errors"
	"time"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/streams"
)

// Streams is the state of a run's streams and workers, by its broker.
type Streams struct {
	// Down says why the broker does not answer; "" where it does.
	Down    string      `json:"down,omitempty"`
	At      time.Time   `json:"at"`
	Streams []StreamNow `json:"streams"`
	Tickets *TicketsNow `json:"tickets,omitempty"`
	Control *ControlNow `json:"control,omitempty"`
	// Tasks are the run's, where its configuration is at hand.
	Tasks   []string   `json:"tasks,omitempty"`
	Newest  *int64     `json:"newest_version,omitempty"`
	Workers []Worker   `json:"workers"`
	Events  []EventNow `json:"events"`
	// Acts are the changes by operators, newest first: events too, which a fast run's own soon push off the list.
	Acts   []EventNow     `json:"acts"`
	Counts map[string]int `json:"event_counts"`

	// Failures are the tasks whose episodes fail.
	Failures []report.Failure `json:"failures"`
	// Refused counts the newest refused messages by producer.
	Refused []ProducerRefusals `json:"refused"`

	// Clock is the broker's time when the events were read. Done reports whether the last trainer came to the run's end.
	Clock time.Time `json:"-"`
	Done  bool      `json:"-"`
}

// StreamNow is a stream of the run.
type StreamNow struct {
	Name        string `json:"name"`
	Messages    uint64 `json:"messages"`
	Bytes       uint64 `json:"bytes"`
	MaxMessages int64  `json:"max_messages"`
	MaxBytes    int64  `json:"max_bytes"`
	First       uint64 `json:"first"`
	Last        uint64 `json:"last"`
	// Age is how long ago the oldest message was stored, in seconds; 0 where there is none.
	Age float64 `json:"age"`
}

// TicketsNow are the tickets that are not done.
type TicketsNow struct {
	Waiting int `json:"waiting"`
	Leased  int `json:"leased"`
	Takers  int `json:"takers"`
	// Redelivered are leased tickets that a producer had before.
	Redelivered int `json:"redelivered"`
}

// ControlNow is the run's control.
type ControlNow struct {
	Paused     bool  `json:"paused"`
	Draining   bool  `json:"draining"`
	Version    int64 `json:"policy_version"`
	MinVersion int64 `json:"min_version"`
	Eta        int   `json:"eta"`
	Depth      int   `json:"depth"`
	// Limits are the limits of episodes that operators have set, in words.
	Limits []LimitNow `json:"limits"`
}

// LimitNow is a limit of episodes that an operator has set.
type LimitNow struct {
	Task  string `json:"task"` // "" is every task
	Key   string `json:"key"`
	Value string `json:"value"`
}

// EventNow is an event.
type EventNow struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Role    string    `json:"role"`
	Worker  string    `json:"worker"`
	Step    int64     `json:"step"`
	Version int64     `json:"policy_version"`
	Message string    `json:"message"`
}

// Streams asks the run's broker about its streams and workers.
func (f *Folder) Streams(ctx context.Context, now time.Time) *Streams {
	out := newStreams(now)
	run, err := f.Broker(ctx)
	if err != nil {
		out.Down = err.Error()
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, brokerPatience)
	defer cancel()
	if err := out.readBroker(ctx, run, now); err != nil {
		f.DropBroker(run, err)
		out.Down = err.Error()
		return out
	}
	out.Refused, _ = f.refusals.readRefusals(ctx, run) // where the page's role may not read REJECTED, only its number of messages is known
	return out
}

func newStreams(now time.Time) *Streams {
	return &Streams{At: now.UTC(), Streams: []StreamNow{}, Workers: []Worker{}, Events: []EventNow{}, Acts: []EventNow{}, Refused: []ProducerRefusals{}, Failures: []report.Failure{}, Counts: map[string]int{}}
}

// ReadStreams asks the broker of a run about its streams and workers. Parts that the connection's role may not see are left out.
func ReadStreams(ctx context.Context, run *streams.Run, now time.Time) (*Streams, error) {
	out := newStreams(now)
	if err := out.readBroker(ctx, run, now); err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Streams) readBroker(ctx context.Context, run *streams.Run, now time.Time) error {
	looks, err := run.StreamInfos(ctx)
	if err != nil {
		return err
	}
	for _, l := range looks {
		n := StreamNow{
			Name: l.Name, Messages: l.Messages, Bytes: l.Bytes, MaxMessages: l.MaxMessages, MaxBytes: l.MaxBytes, First: l.First, Last: l.Last,
		}
		if !l.Oldest.IsZero() {
			n.Age = max(0, now.Sub(l.Oldest).Seconds())
		}
		s.Streams = append(s.Streams, n)
	}
	tickets, err := run.TicketCounts(ctx)
	if err != nil {
		return err
	}
	s.Tickets = &TicketsNow{tickets.Waiting, tickets.Leased, tickets.Takers, tickets.Redelivered}
	control, err := run.Control(ctx)
	switch {
	case err == nil:
		s.Control = &ControlNow{control.Paused, control.Draining, control.PolicyVersion, control.MinVersion, control.Eta, control.Depth, []LimitNow{}}
		for _, l := range control.Limits {
			s.Control.Limits = append(s.Control.Limits, LimitNow{l.Task, l.Key, l.Text()})
		}
	case !errors.Is(err, streams.ErrNoControl):
		return err
	}
	manifest, err := run.LatestManifest(ctx)
	switch {
	case err == nil:
		s.Newest = &manifest.Version
	case !errors.Is(err, streams.ErrNoWeights) && !errors.Is(err, streams.ErrDenied):
		return err
	}
	events := NewEvents(now)
	read, err := run.EventsAfter(ctx, streams.EventsPlace{}, pastEvents, events.Add)
	if err != nil && !errors.Is(err, streams.ErrDenied) {
		return err
	}
	all := events.Streams(read.Now)
	s.Workers, s.Events, s.Acts, s.Counts, s.Clock, s.Done, s.Failures = all.Workers, all.Events, all.Acts, all.Counts, all.Clock, all.Done, all.Failures
	return nil
}
