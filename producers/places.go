package producers

import (
	"context"
	"errors"
	"slices"
	"time"
)

// PlaceTaker is a SessionTool whose sessions take a place among few, such as a sandbox's, with their first call, and keep it until Close.
type PlaceTaker interface {
	SessionTool
	// TakePlace waits until the session of a call has its place, before the call is made: neither the episode's time nor a time limit of
	// the tool's runs meanwhile, where the wait itself is within [HoldTime]. It starts nothing. own reports whether the episode has a place
	// of its own now; false is a call that needs none, or a place that is every episode's. An error that wraps [ErrNoRoom] sends the ticket
	// back, which has not failed; after any other the call is made, and says itself what is wrong. patience is for how long it waits
	// while no place comes free; 0 is no bound.
	TakePlace(ctx context.Context, call Call, patience time.Duration) (own bool, err error)
}

// TakePlaceOf is TakePlace of a tool that may be a [PlaceTaker].
func TakePlaceOf(ctx context.Context, tool Tool, call Call, patience time.Duration) (own bool, err error) {
	if taker, takes := tool.(PlaceTaker); takes {
		return taker.TakePlace(ctx, call, patience)
	}
	return false, nil
}

// errPlaced ends a wait for a place: the episode has another now, and its time runs.
var errPlaced = errors.New("the episode has another place")

// episodeKey is the key of an episode in the contexts in which its places are taken.
type episodeKey struct{}

// withEpisode returns a context in which [HoldTime] finds the episode.
func (e *Episode) withEpisode(ctx context.Context) context.Context {
	return context.WithValue(ctx, episodeKey{}, e)
}

// HoldTime is [Episode.HoldTime] of the episode for which an agent runs, [PlaceTaker.TakePlace] is called or a [Reward] scores with
// ctx. It is for waits for a place, and does nothing where there is no episode, where it has a place, and within a call: episodes that wait
// for each other would wait for ever.
func HoldTime(ctx context.Context, thing string) (goOn func()) {
	e, ok := ctx.Value(episodeKey{}).(*Episode)
	if _, called := ctx.Value(callTimeKey{}).(*callTime); !ok || called || e.hasPlace() {
		return func() {}
	}
	return e.HoldTime(thing)
}

// HoldCall has the time of a call with ctx stand still until goOn is called once, and that of its episode, but while another request or
// call works for the episode: the call waits for its turn behind calls that wait for nothing which its episode has. thing is for messages.
func HoldCall(ctx context.Context, thing string) (goOn func()) {
	call, _ := ctx.Value(callTimeKey{}).(*callTime)
	call.countWait(1)
	runs := holdEpisode(ctx, thing)
	return func() {
		runs()
		call.countWait(-1)
	}
}

// holdEpisode has the time of the episode of a call stand still.
func holdEpisode(ctx context.Context, thing string) (goOn func()) {
	if hold, elsewhere := ctx.Value(holdKey{}).(func(string) func()); elsewhere {
		return hold(thing)
	}
	e, ok := ctx.Value(episodeKey{}).(*Episode)
	if !ok {
		return func() {}
	}
	runs, resume := e.HoldTime(thing), func() {}
	if _, works := ctx.Value(workKey{}).(bool); works {
		resume = e.pauseWork()
	}
	return func() {
		resume()
		runs()
	}
}

// holdKey is the key of what holds the time of an episode of another process.
type holdKey struct{}

// WithHold returns a context for a call that is made for an episode of another process: [HoldCall] calls hold, whose goOn is called once.
func WithHold(ctx context.Context, hold func(thing string) (goOn func())) context.Context {
	return context.WithValue(ctx, holdKey{}, hold)
}

// workKey is the key of whether what goes on with a context is counted as work for its episode.
type workKey struct{}

// pauseWork notes that a call waits. The returned function notes that it goes on.
func (e *Episode) pauseWork() (resume func()) {
	a := &e.activity
	a.mu.Lock()
	defer a.mu.Unlock()
	e.countWork(-1)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		e.countWork(1)
	}
}

// takePlaces takes the places that the calls of a turn need, before the first of them is made. An episode that has a place takes no other
// here: its call waits for the other in its own time.
func (c *Context) takePlaces(ctx context.Context, calls []ToolCall, index int) error {
	e := c.e
	for i, call := range calls {
		tool, own := c.findTool(call.Name)
		taker, takes := tool.(PlaceTaker)
		if _, replaced := e.env.Results[index+i]; !takes || own || replaced || e.hasPlace() {
			continue
		}
		err := Guard(func() error {
			return e.takePlace(ctx, taker, Call{
				Arguments: call.Arguments, Run: e.ticket.Run, Episode: e.ticket.ID, Index: index + i, Seed: e.drawingSeed(),
			})
		})
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if errors.Is(err, ErrNoRoom) {
			return blamePart(PartTool, call.Name, err)
		}
	}
	return nil
}

// takePlace takes the place of a call, unless the episode comes to another place meanwhile.
func (e *Episode) takePlace(ctx context.Context, taker PlaceTaker, call Call) error {
	waiting, end := context.WithCancelCause(e.withEpisode(ctx))
	defer end(nil)
	defer e.activity.beginPlacing(func() { end(errPlaced) })()
	patience := 2 * e.ticket.Limits.Timeout // an episode with a place may take all its time, and as much again for its score
	own, err := taker.TakePlace(waiting, call, patience)
	switch {
	case err == nil && own:
		e.activity.keepPlace()
	case err != nil && errors.Is(context.Cause(waiting), errPlaced):
		return nil
	}
	return err
}

// hasPlace reports whether the episode has a place of its own among few.
func (e *Episode) hasPlace() bool {
	e.activity.mu.Lock()
	defer e.activity.mu.Unlock()
	return e.activity.placed
}

// beginPlacing notes a wait for a place, which end ends: at once where the episode has a place. The returned function notes that it is
// over.
func (a *activity) beginPlacing(end func()) (over func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.placing = append(a.placing, &end); a.placed {
		end()
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.placing = slices.DeleteFunc(a.placing, func(other *func()) bool { return other == &end })
	}
}

// NotePlace notes that the episode's agent has a place of its own among few, until left is called: while the episode waits for another
// place, its time runs.
func (e *Episode) NotePlace() (left func()) {
	e.activity.notePlace()
	return e.activity.forgetPlace
}

// forgetPlace notes that the place of the episode's agent is another's. Places of the episode's tools are kept until it is closed.
func (a *activity) forgetPlace() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.placed = a.kept
}

// keepPlace notes that the episode has a place until it is closed.
func (a *activity) keepPlace() {
	a.notePlace()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept = true
}

// notePlace notes that the episode has a place, and ends its waits for others.
func (a *activity) notePlace() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.placed = true
	for _, end := range a.placing {
		(*end)()
	}
}

// roomlessError is an error of an episode that waited for a place while it had another. It is no ErrNoRoom: such tickets, which may wait
// for each other whenever they are played, have failed.
type roomlessError struct{ err error }

func (r roomlessError) Error() string { return r.err.Error() }

// Is says that it is an ErrUnavailable.
func (r roomlessError) Is(target error) bool { return target == ErrUnavailable }

// countsRoom makes the failure of a call count where the episode has a place of its own.
func (e *Episode) countsRoom(err error) error {
	if errors.Is(err, ErrNoRoom) && e.hasPlace() {
		return roomlessError{err}
	}
	return err
}
