package producers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// openInTime opens the sessions of the episode, whose own time does not begin before: where all workers are full, sessions are
// waited for. The wait is bounded by as much time again. The caller calls end when the sessions are closed, or the agent has ended.
func (e *Episode) openInTime(ctx context.Context) (end func(), err error) {
	defer e.HoldTime("")()
	opening, cancel := context.WithCancelCause(ctx)
	if limit := e.ticket.Limits.Timeout; limit > 0 {
		timer := time.AfterFunc(limit, func() { cancel(limitPassedError{}) })
		defer timer.Stop()
	}
	return func() { cancel(nil) }, e.openSessions(opening)
}

// openSessions opens the episode's tools that keep something for it. Where a session fails, the episode does not begin.
func (e *Episode) openSessions(ctx context.Context) error {
	if e.ticket.Limits.MaxTurns == 0 {
		return nil // its agent may call no tool
	}
	for _, tool := range e.env.Tools {
		tool, keeps := tool.(SessionTool)
		if !keeps {
			continue
		}
		opened := e.activity.beginCall(partSession, describeSession(tool))
		err := Guard(func() error { return OpenSession(ctx, tool, e.mainSession(), SecretOf(e.ticket)) })
		opened()
		if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, errTimedOut) {
			return cause
		}
		if errors.Is(err, ErrPrompt) {
			return fmt.Errorf("prompt %s: open a session of tool %s: %w", e.ticket.Prompt.ID, tool.Spec().Name, err)
		}
		if errors.Is(err, ErrNoRoom) {
			return fmt.Errorf("%w: open a session of tool %s: %w", ErrNotBegun, tool.Spec().Name, err)
		}
		if err != nil {
			return blamePart(PartTool, tool.Spec().Name, fmt.Errorf("open a session: %w: %w", ErrUnavailable, err))
		}
		e.sessions = append(e.sessions, tool)
	}
	return nil
}

// partSession is the opening of a tool's session among the calls of an episode that have not returned.
const partSession = "a session of tool"

// describeSession names a tool whose session is opened, and where that is.
func describeSession(tool SessionTool) string {
	name := tool.Spec().Name
	if apart, ok := tool.(Apart); ok {
		if place := apart.Place(); place != "" {
			return name + " " + place
		}
	}
	return name
}

// mainSession returns the episode's session.
func (e *Episode) mainSession() Session {
	t := e.ticket
	return Session{Run: t.Run, Episode: t.ID, Task: t.Task, Source: t.Prompt.Source, Seed: e.drawingSeed(), World: t.Prompt.World}
}

// firstWorkspace returns the first workspace of the episode's sessions; nil if no tool has a session.
func (e *Episode) firstWorkspace() Workspace {
	for _, tool := range e.sessions {
		if tool, ok := tool.(Workspaced); ok {
			if w, open := tool.Workspace(e.ticket.ID); open {
				return w
			}
		}
	}
	return nil
}

// closeSessions closes everything that is kept for the episode. It takes [CloseLimit] at most; a session that is not closed by then goes on
// by itself and is counted.
func (e *Episode) closeSessions(ctx context.Context) {
	if policy, ok := e.env.Policy.(Forgetter); ok {
		for _, name := range e.cacheNames() {
			_ = policy.Forget(name) // a hint: without it an engine drops the cache that is idle for longest
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseLimit)
	defer cancel()
	var closing sync.WaitGroup
	for _, tool := range e.sessions {
		closing.Go(func() {
			closed := make(chan error, 1)
			go func() { closed <- Guard(func() error { return tool.Close(ctx, e.ticket.ID) }) }()
			var err error
			select {
			case err = <-closed:
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
			if err != nil {
				e.env.metrics.countUnclosed(tool.Spec().Name)
			}
		})
	}
	closing.Wait()
}
