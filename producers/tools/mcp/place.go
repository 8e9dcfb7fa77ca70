package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
)

// waitForPlace is the wait of an episode among those that have not returned.
const waitForPlace = "a place for its server (sandbox.most)"

// TakePlace waits for the place of the session's programs where they are confined.
func (t *Tool) TakePlace(ctx context.Context, call producers.Call, patience time.Duration) (own bool, err error) {
	s := t.server.sessionOf(call.Episode)
	if _, refused := readArguments(call.Arguments); !t.server.cfg.Sandboxed() || s == nil || refused != nil {
		return false, nil //nolint:nilerr // the call says it
	}
	err = s.takePlace(ctx, t.server, call.Episode, patience)
	return err == nil && !t.server.cfg.Shared, err
}

// takePlace takes a place for the session's programs where they have none. The reward may end them and use the place, but for a session
// that other episodes share.
func (s *session) takePlace(ctx context.Context, server *Server, episode string, patience time.Duration) error {
	if place, err := s.currentPlace(); place != nil || err != nil {
		return err
	}
	leave, err := s.taking.Enter(ctx, waitForPlace)
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	defer leave()
	if place, err := s.currentPlace(); place != nil || err != nil {
		return err
	}
	place, err := server.spaces.TakePlaceWithin(ctx, patience)
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	s.room.Lock()
	defer s.room.Unlock()
	if s.over {
		place.Leave()
		return errOver
	}
	if s.place = place; !server.cfg.Shared {
		s.forget = server.spaces.Lend(episode, place, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.dropConnection()
		})
	}
	return nil
}

// errOver is the error of a session that has ended.
var errOver = errors.New("the session has ended")

// currentPlace is the place of the session's programs; nil where they have none. It fails where the session has ended.
func (s *session) currentPlace() (*sandbox.Place, error) {
	s.room.Lock()
	defer s.room.Unlock()
	if s.over {
		return nil, errOver
	}
	return s.place, nil
}

// placeWithin is the place of the session's programs where they are confined, taken within start_timeout where they have none.
func (s *session) placeWithin(ctx context.Context, server *Server, episode string) (*sandbox.Place, error) {
	if !server.cfg.Sandboxed() {
		return nil, nil
	}
	within := server.cfg.StartTimeout
	waiting, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no session within start_timeout, %s", within))
	defer cancel()
	if err := s.takePlace(waiting, server, episode, 0); err != nil {
		return nil, err
	}
	return s.currentPlace()
}

// leavePlace gives the place back for good.
func (s *session) leavePlace() {
	s.room.Lock()
	defer s.room.Unlock()
	s.over = true
	if s.forget != nil {
		s.forget()
	}
	if s.place != nil {
		s.place.Leave()
	}
}

// sessionOf returns the session of an episode; nil where none is open.
func (s *Server) sessionOf(episode string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[s.sessionName(episode)]
}

// readArguments reads the arguments of a call.
func readArguments(text string) (map[string]json.RawMessage, error) {
	var arguments map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &arguments); err != nil || arguments == nil {
		return nil, fmt.Errorf("the arguments are not a JSON object: %.80q", text)
	}
	return arguments, nil
}
