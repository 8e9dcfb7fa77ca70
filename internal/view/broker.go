package view

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/operate"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// Streams is what a run's broker tells.
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
	// Acts are what operators changed, newest first: events too, which a fast run's own soon push off the list.
	Acts   []EventNow     `json:"acts"`
	Counts map[string]int `json:"event_counts"`

	// clock is the broker's, when the events were read; done says that the last trainer came to the run's end.
	clock time.Time
	done  bool
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
	// Redelivered are leased tickets that another producer, or the same one, had before.
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
	// Limits are what operators have set of the limits of episodes, in words.
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

const (
	// pastEvents is how many of the newest events the page reads.
	pastEvents = 3000
	// shownEvents is how many of them it shows, shownActs how many of those by operators.
	shownEvents = 60
	shownActs   = 10
)

// streams asks the run's broker.
func (f *folder) streams(ctx context.Context, now time.Time) *Streams {
	out := newStreams(now)
	run, err := f.live.get(ctx)
	if err != nil {
		out.Down = err.Error()
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := out.read(ctx, run, now); err != nil {
		f.live.drop(run, err)
		out.Down = err.Error()
	}
	if known := f.known(); known != nil {
		out.Tasks = known.Tasks
	}
	return out
}

func newStreams(now time.Time) *Streams {
	return &Streams{At: now.UTC(), Streams: []StreamNow{}, Workers: []Worker{}, Events: []EventNow{}, Acts: []EventNow{}, Counts: map[string]int{}}
}

// ReadStreams asks the broker of a run what its streams hold and who is at work. What the connection's role may not see is left out.
func ReadStreams(ctx context.Context, run *streams.Run, now time.Time) (*Streams, error) {
	out := newStreams(now)
	if err := out.read(ctx, run, now); err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Streams) read(ctx context.Context, run *streams.Run, now time.Time) error {
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
	workers := workers{}
	told, err := run.EventsAfter(ctx, streams.EventsPlace{}, pastEvents, func(e *schemas.Event, stored time.Time) { s.tell(workers, e, stored) })
	if err != nil && !errors.Is(err, streams.ErrDenied) {
		return err
	}
	s.clock = told.Now
	s.Workers = workers.list(s.clock)
	slices.Reverse(s.Events)
	slices.Reverse(s.Acts)
	return nil
}

// newest appends an event to those before it, of which so many are kept.
func newest(events []EventNow, e EventNow, most int) []EventNow {
	if len(events) == most {
		events = events[1:]
	}
	return append(events, e)
}

// tell takes an event in that the broker stored at a time.
func (s *Streams) tell(workers workers, e *schemas.Event, stored time.Time) {
	s.Counts[string(e.Type)]++
	if e.Role != "operator" {
		workers.tell(e, stored)
	}
	if e.Type == schemas.EventWorkerHere {
		return // the list of workers has it
	}
	now := EventNow{e.At, string(e.Type), e.Role, e.Worker, e.Step, e.PolicyVersion, e.Message}
	s.Events = newest(s.Events, now, shownEvents)
	if e.Role == "operator" {
		s.Acts = newest(s.Acts, now, shownActs)
	}
	switch {
	case e.Type == schemas.EventRunDone:
		s.done = true
	case e.Role == roleTrainer && e.Type == schemas.EventWorkerJoined:
		s.done = false
	}
}

func (a *api) streams(q asked) (any, error) { return q.run.streams(q.Context(), a.now()), nil }

// control does an act.
func (a *api) control(q asked) (any, error) {
	var act operate.Act
	if err := readJSON(q.Request, &act); err != nil {
		return nil, usageError{err}
	}
	if err := act.Validate(); err != nil {
		return nil, usageError{err}
	}
	if err := q.run.known().Check(act); err != nil {
		return nil, usageError{err}
	}
	run, err := q.run.live.get(q.Context())
	if err != nil {
		return nil, usageError{errors.New("the run is not up, so that there is nothing to change: " + err.Error())}
	}
	ctx, cancel := context.WithTimeout(q.Context(), 10*time.Second)
	defer cancel()
	done, err := operate.Do(ctx, run, act, "page at "+q.RemoteAddr, a.now())
	switch {
	case errors.Is(err, streams.ErrDenied):
		return nil, usageError{errors.New("the page's own key may not change the run: use weir control with the admin's seed")}
	case err != nil:
		return nil, usageError{err}
	}
	a.log.Info("an operator's act", "run", q.run.Name, "changes", strings.Join(done.Changes, "; "), "from", q.RemoteAddr)
	return map[string]any{"changes": done.Changes, "told": done.Told}, nil
}

// maxBody bounds what is sent to the page's server.
const maxBody = 1 << 16

// readJSON reads what was sent.
func readJSON(r *http.Request, to any) error {
	return decode(http.MaxBytesReader(nil, r.Body, maxBody), to)
}
