package starlark

import (
	"context"
	"fmt"

	"github.com/weir-rl/weir/producers"
)

// attach gives a session a worker, if it has none. One that others shared and that ended between two cells cost the session its variables: the
// agent is told, with what its cell comes to in a worker of its own, for whatever it left in the memory of the first may be why. So is one
// whose worker, its own, ended for want of memory. Else that was no fault of the session's, and is the machinery's failure.
func (t *Tool) attach(ctx context.Context, s *session) error {
	if w := s.worker; w != nil {
		if w.alive() {
			return nil
		}
		t.mu.Lock()
		crowded := w.crowded
		t.mu.Unlock()
		t.detach(s)
		s.lost, s.own = true, s.own || crowded
		if !crowded && !w.starved() {
			return fmt.Errorf("%w: starlark: the worker %s between two cells", producers.ErrUnavailable, w.how())
		}
	}
	w, err := t.worker(ctx, s.own)
	if err != nil {
		return err
	}
	s.worker = w
	if err := w.say(request{Session: s.id, Open: &s.opening}); err != nil {
		t.detach(s)
		return fmt.Errorf("%w: starlark: %w", producers.ErrUnavailable, err)
	}
	return nil
}

// worker takes a place in a worker: in one that has room, else in a new one, for which it waits where there are as many as there
// may be. own asks for one that nobody else gets, where there may be another.
func (t *Tool) worker(ctx context.Context, own bool) (*worker, error) {
	if own {
		select {
		case t.slots <- struct{}{}:
			return t.begin(true)
		default:
		}
	}
	if w := t.shared(); w != nil {
		return w, nil
	}
	select {
	case t.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: starlark: all %d workers are taken: %w", producers.ErrUnavailable, t.cfg.Workers, context.Cause(ctx))
	}
	return t.begin(false)
}

// begin starts a worker in a slot that was taken.
func (t *Tool) begin(own bool) (*worker, error) {
	w, err := start(t.cfg.MemoryBytes, func() { <-t.slots })
	if err != nil {
		<-t.slots
		return nil, fmt.Errorf("%w: starlark: %w", producers.ErrUnavailable, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w.sessions, w.own = 1, own
	t.workers[w] = true
	return w, nil
}

// shared takes a place in a worker with room; nil where there is none.
func (t *Tool) shared() *worker {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.workers {
		if w.sessions < t.cfg.SessionsPerWorker && !w.own && w.alive() {
			w.sessions++
			w.crowded = true
			return w
		}
	}
	return nil
}

// detach gives a session's place up. A worker without sessions ends.
func (t *Tool) detach(s *session) {
	w := s.worker
	if w == nil {
		return
	}
	s.worker = nil
	t.mu.Lock()
	w.sessions--
	last := w.sessions == 0
	if last {
		delete(t.workers, w)
	}
	t.mu.Unlock()
	if last {
		w.kill()
	} else if w.alive() {
		_ = w.say(request{Session: s.id, Close: true}) // one that cannot be written to has ended
	}
}
