package starlark

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-rl/weir/producers"
)

// waitForPlace names the wait of an episode in messages.
const waitForPlace = "a place at a Starlark worker (workers)"

// TakePlace waits for the session's place at a worker. It is a place of the episode's own once sessions were more than the places:
// before, nobody waits for an episode with a place.
func (t *Tool) TakePlace(ctx context.Context, call producers.Call, patience time.Duration) (own bool, err error) {
	s := t.sessionOf(call.Episode)
	if s == nil || len(call.Arguments) > t.cfg.CodeBytes {
		return false, nil
	}
	if err := t.takePlace(ctx, s, patience); err != nil {
		return false, err
	}
	return t.few.Load(), nil
}

// takePlace waits until the session has a place, which it keeps until it is closed.
func (t *Tool) takePlace(ctx context.Context, s *session, patience time.Duration) error {
	if has, err := s.hasPlace(); has || err != nil {
		return err
	}
	leave, err := s.taking.Enter(ctx, waitForPlace)
	if err != nil {
		return err
	}
	defer leave()
	if has, err := s.hasPlace(); has || err != nil {
		return err
	}
	if err := t.awaitPlace(ctx, patience); err != nil {
		return err
	}
	s.placing.Lock()
	defer s.placing.Unlock()
	if s.left {
		<-t.places
		return errClosed
	}
	s.places = 1
	return nil
}

// awaitPlace waits for a place. It gives up where nobody has got any for as long as patience; 0 never does.
func (t *Tool) awaitPlace(ctx context.Context, patience time.Duration) error {
	select {
	case t.places <- struct{}{}:
		t.taken.Add(1)
		return nil
	default:
	}
	t.few.Store(true)
	defer producers.HoldTime(ctx, waitForPlace)()
	wait := producers.NewPatience(patience, &t.taken)
	defer wait.Stop()
	for {
		select {
		case t.places <- struct{}{}:
			t.taken.Add(1)
			return nil
		case <-wait.Look():
			if wait.IsOver() {
				return fmt.Errorf("%w: starlark: all %d workers are taken, and no place came free for %s: "+
					"raise workers, or lower producer.concurrency", producers.ErrNoRoom, t.cfg.Workers, patience)
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: starlark: all %d workers are taken: %s",
				producers.ErrNoRoom, t.cfg.Workers, context.Cause(ctx).Error())
		}
	}
}

// takeAll takes the other places of a worker too, for a session that has a place, where they are free now.
func (t *Tool) takeAll(s *session) bool {
	s.placing.Lock()
	defer s.placing.Unlock()
	before := s.places
	for s.places < t.cfg.SessionsPerWorker {
		select {
		case t.places <- struct{}{}:
			s.places++
			continue
		default:
		}
		for ; s.places > before; s.places-- {
			<-t.places
		}
		return false
	}
	return true
}

// errClosed is the error of a session that was closed.
var errClosed = fmt.Errorf("%w: starlark: the session was closed", producers.ErrUnavailable)

// hasPlace reports whether the session has a place. It fails where the session was closed.
func (s *session) hasPlace() (bool, error) {
	s.placing.Lock()
	defer s.placing.Unlock()
	if s.left {
		return false, errClosed
	}
	return s.places > 0, nil
}

// leavePlaces gives the session's places back for good.
func (t *Tool) leavePlaces(s *session) {
	s.placing.Lock()
	defer s.placing.Unlock()
	for s.left = true; s.places > 0; s.places-- {
		<-t.places
	}
}

// sessionOf returns the session of an episode; nil where none is open.
func (t *Tool) sessionOf(episode string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sessions[episode]
}
