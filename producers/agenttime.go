package producers

import (
	"context"
	"errors"
	"time"
)

// limitPassedError is errTimedOut of a limit that is no deadline of a context, as which it counts too.
type limitPassedError struct{}

func (limitPassedError) Error() string { return errTimedOut.Error() }

// Is says that it is both.
func (limitPassedError) Is(target error) bool {
	return target == errTimedOut || target == context.DeadlineExceeded
}

// agentTime is what is left of an episode's time limit. It runs but while the episode waits: see [Episode.HoldTime]. The lock
// of the episode's activity guards it; nil is no limit that stands still.
type agentTime struct {
	left  time.Duration
	since time.Time // it runs since then
	timer *time.Timer
}

// TimeLeft is how long the agent has for the episode, from its begin here on; 0 is no bound.
func (e *Episode) TimeLeft() time.Duration {
	if e.ticket.Limits.Timeout <= 0 {
		return 0
	}
	return max(e.ticket.Limits.Timeout-e.journal.timeBefore(), leastTimeLeft)
}

// limitAgent bounds the agent's context by the episode's time limit, whose time may stand still.
func (e *Episode) limitAgent(ctx context.Context) (context.Context, context.CancelFunc) {
	left := e.TimeLeft()
	if left == 0 {
		return ctx, func() {}
	}
	limited, end := context.WithCancelCause(ctx)
	limit := &agentTime{left: left, since: time.Now(), timer: time.AfterFunc(left, func() { end(limitPassedError{}) })}
	e.setLimit(limit)
	return limitedContext{limited, e}, func() {
		e.setLimit(nil)
		limit.timer.Stop()
		end(nil)
	}
}

// setLimit has the episode have a time limit; nil is none.
func (e *Episode) setLimit(limit *agentTime) {
	e.activity.mu.Lock()
	defer e.activity.mu.Unlock()
	e.activity.limit = limit
}

// limitedContext is the context of an agent: it tells of its limit as a context with a deadline does.
type limitedContext struct {
	context.Context //nolint:containedctx // it is that context, with another deadline
	e               *Episode
}

// Deadline is when the time limit passes; it is not known while the time stands still.
func (c limitedContext) Deadline() (deadline time.Time, known bool) {
	deadline, known = c.Context.Deadline()
	a := &c.e.activity
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limit == nil || a.still {
		return deadline, known
	}
	if passes := a.limit.since.Add(a.limit.left); !known || passes.Before(deadline) {
		return passes, true
	}
	return deadline, known
}

// Err is DeadlineExceeded where the time limit has passed.
func (c limitedContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), errTimedOut) {
		return context.DeadlineExceeded
	}
	return err
}

// holdTime has the time stand still, or run on. The lock of the activity is held.
func (l *agentTime) holdTime(still bool, now time.Time) {
	switch {
	case l == nil:
	case !still:
		l.since = now
		l.timer.Reset(l.left)
	case l.timer.Stop():
		l.left -= now.Sub(l.since)
	}
}

// NoteUnclaimed notes whether the episode waits for an agent that comes for it by itself.
func (e *Episode) NoteUnclaimed(unclaimed bool) {
	a := &e.activity
	a.mu.Lock()
	defer a.mu.Unlock()
	if unclaimed == a.unclaimed {
		return
	}
	a.unclaimed = unclaimed
	if unclaimed {
		e.countWait(1)
	} else {
		e.countWait(-1)
	}
}

// HoldTime has the time of the episode stand still until goOn is called once, but while a request or a call works for it: nothing can be
// done for it meanwhile, as other episodes have the thing that it waits for. An episode that has such a thing itself must not: episodes that
// wait for each other would wait for ever. thing is for messages; "" is told of already.
func (e *Episode) HoldTime(thing string) (goOn func()) {
	a, returned := &e.activity, func() {}
	if thing != "" {
		returned = a.beginWait(thing)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e.countWait(1)
	return func() {
		returned()
		a.mu.Lock()
		defer a.mu.Unlock()
		e.countWait(-1)
	}
}

// beginWork notes a request or a call for the episode: its time runs until it has ended, whatever else waits. The returned function notes
// its end.
func (e *Episode) beginWork() (ended func()) {
	a := &e.activity
	a.mu.Lock()
	defer a.mu.Unlock()
	e.countWork(1)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		e.countWork(-1)
	}
}

// countWork counts a request or a call that begins, ends, waits or goes on. The lock of the activity is held.
func (e *Episode) countWork(by int) {
	e.activity.works += by
	e.settleTime()
}

// countWait counts a wait that begins, or ends. The lock of the activity is held.
func (e *Episode) countWait(by int) {
	e.activity.waits += by
	e.settleTime()
}

// settleTime has the time stand still while the episode waits and nothing works for it. The lock of the activity is held.
func (e *Episode) settleTime() {
	a, now := &e.activity, time.Now()
	still := a.waits > 0 && a.works <= 0
	if still == a.still {
		return
	}
	if a.still = still; still {
		a.stillSince = now
	} else {
		a.waited += now.Sub(a.stillSince)
	}
	a.newest = now
	a.limit.holdTime(still, now)
	e.journal.holdTime(still, now)
}

// holdTime has the time of the episode stand still, or run on.
func (j *journal) holdTime(still bool, now time.Time) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if still {
		j.held = now
		return
	}
	j.began, j.held = j.began.Add(now.Sub(j.held)), time.Time{}
}
