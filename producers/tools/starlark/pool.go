package starlark

import (
	"context"
	"fmt"

	"github.com/weir-rl/weir/producers"
)

// attachWorker gives a session a worker, if it has none. A shared worker that ended between two cells cost the session its variables: the
// agent is told, with the outcome of its cell in a worker of its own, since its objects in the memory of the first worker may be the
// cause. So is a session whose own worker ended for want of memory. Else that was no fault of the session's, and is the machinery's
// failure.
func (t *Tool) attachWorker(ctx context.Context, s *session) error {
	if w := s.worker; w != nil {
		if w.isAlive() {
			return nil
		}
		t.mu.Lock()
		crowded := w.crowded
		t.mu.Unlock()
		t.detachWorker(s)
		s.lost, s.own = true, s.own || crowded
		if !crowded && !w.ranOutOfMemory() {
			return fmt.Errorf("%w: starlark: the worker %s between two cells", producers.ErrUnavailable, w.howEnded())
		}
	}
	for attempt := 1; ; attempt++ {
		w, err := t.takeWorker(ctx, s)
		if err != nil {
			return err
		}
		s.worker = w
		if err = w.sendRequest(request{Session: s.id, Open: &s.opening}); err == nil {
			return nil
		}
		t.mu.Lock()
		crowded := w.crowded
		t.mu.Unlock()
		t.detachWorker(s)
		if !crowded || attempt == maxAttaching { // else a neighbour's cell has just ended it
			return fmt.Errorf("%w: starlark: %w", producers.ErrUnavailable, err)
		}
	}
}

// maxAttaching is in how many workers a session is opened at most: in each before, it was not alone.
const maxAttaching = 8

// takeWorker has a session join a worker, once it has a place: a worker that has room, else a new worker. With a place there is room,
// but for the moments in which workers begin and end.
func (t *Tool) takeWorker(ctx context.Context, s *session) (*worker, error) {
	if err := t.takePlace(ctx, s, 0); err != nil {
		return nil, err
	}
	if s.own {
		select {
		case t.slots <- struct{}{}:
			return t.startWorker(t.takeAll(s))
		default:
		}
	}
	for {
		w, changed := t.takeShared()
		if w != nil {
			return w, nil
		}
		select {
		case t.slots <- struct{}{}:
			return t.startWorker(false)
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: starlark: all %d workers are taken: %w", producers.ErrUnavailable, t.cfg.Workers, context.Cause(ctx))
		}
	}
}

// startWorker starts a worker in a slot that was taken.
func (t *Tool) startWorker(own bool) (*worker, error) {
	w, err := newWorker(t.cfg.MemoryBytes, func() { <-t.slots })
	if err != nil {
		<-t.slots
		return nil, fmt.Errorf("%w: starlark: %w", producers.ErrUnavailable, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w.sessions, w.own = 1, own
	t.workers[w] = true
	t.noteChange()
	return w, nil
}

// noteChange wakes all that wait for room in a worker. The lock is held.
func (t *Tool) noteChange() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// takeShared joins a worker with room; nil where there is none until changed is closed.
func (t *Tool) takeShared() (joined *worker, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.workers {
		if w.sessions < t.cfg.SessionsPerWorker && !w.own && w.isAlive() {
			w.sessions++
			w.crowded = true
			return w, nil
		}
	}
	return nil, t.changed
}

// reserveWorker keeps a worker for the only session that it has; false where it has several.
func (t *Tool) reserveWorker(w *worker) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.sessions > 1 {
		return false
	}
	w.own = true
	return true
}

// detachWorker gives a session's place up. A worker without sessions ends.
func (t *Tool) detachWorker(s *session) {
	w := s.worker
	if w == nil {
		return
	}
	s.worker = nil
	t.mu.Lock()
	w.sessions--
	t.noteChange()
	last := w.sessions == 0
	if last {
		delete(t.workers, w)
	}
	t.mu.Unlock()
	if last {
		w.killProcess()
	} else if w.isAlive() {
		_ = w.sendRequest(request{Session: s.id, Close: true}) // a worker that cannot be written to has ended
	}
}
