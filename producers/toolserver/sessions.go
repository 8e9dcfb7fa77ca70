// Package toolserver serves tools to callers of other protocols than Weir's: Search-R1's /retrieve and VerlTool's
// /get_observation. [Sessions] holds the tools' state for each of their callers' episodes.
package toolserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-rl/weir/producers"
)

// Config bounds the sessions.
type Config struct {
	// Sessions is how many there may be at once, > 0.
	Sessions int
	// Idle is how long a session may be without a call before it is closed, > 0.
	Idle time.Duration
}

// ErrFull is returned when there are as many sessions as there may be.
var ErrFull = errors.New("as many sessions are open as there may be")

// Sessions are the sessions of a server's callers, by name. A session opens with its first call.
type Sessions struct {
	cfg   Config
	tools map[string]producers.Tool
	first string // the only tool's name, "" where there are several

	mu   sync.Mutex
	open map[string]*session
}

type session struct {
	mu     sync.Mutex // held by a call: a session's calls run one by one
	last   time.Time  // of a call's end; guarded by the Sessions' mutex
	busy   int        // calls under way or waiting; guarded by the Sessions' mutex
	calls  int
	opened []producers.SessionTool
	ready  bool
}

// New serves these tools, by distinct names.
func New(cfg Config, served []producers.Tool) *Sessions {
	s := &Sessions{cfg: cfg, tools: map[string]producers.Tool{}, open: map[string]*session{}}
	for _, tool := range served {
		s.tools[tool.Spec().Name] = tool
		s.first = tool.Spec().Name
	}
	if len(served) > 1 {
		s.first = ""
	}
	return s
}

// Run closes idle sessions until ctx ends, and then all.
func (s *Sessions) Run(ctx context.Context) {
	ticker := time.NewTicker(max(time.Millisecond, s.cfg.Idle/4))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.endSessions(context.WithoutCancel(ctx), func(*session) bool { return true })
			return
		case now := <-ticker.C:
			s.endSessions(ctx, func(one *session) bool { return one.busy == 0 && now.Sub(one.last) > s.cfg.Idle })
		}
	}
}

// endSessions closes the sessions for which over is true.
func (s *Sessions) endSessions(ctx context.Context, over func(*session) bool) {
	s.mu.Lock()
	var names []string
	for name, one := range s.open {
		if over(one) {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	for _, name := range names {
		_ = s.closeSession(ctx, name, over) // a session that does not close well is the tool's
	}
}

// Call calls a tool in a session, which opens if there is none of this name. world is the world that it opens with.
func (s *Sessions) Call(ctx context.Context, name, tool, arguments string, world []byte) (producers.Observation, error) {
	called := s.tools[tool]
	if called == nil {
		return producers.Observation{}, fmt.Errorf("there is no tool named %q", tool)
	}
	one, err := s.enterSession(name)
	if err != nil {
		return producers.Observation{}, err
	}
	defer s.leaveSession(one)
	one.mu.Lock()
	defer one.mu.Unlock()
	if !one.ready {
		if err := one.openTools(ctx, s.tools, producers.Session{Run: "toolserver", Episode: name, World: world}); err != nil {
			return producers.Observation{}, err
		}
	}
	one.calls++
	return called.Call(ctx, producers.Call{Arguments: arguments, Run: "toolserver", Episode: name, Index: one.calls - 1})
}

func (s *Sessions) enterSession(name string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.open[name]
	if one == nil {
		if len(s.open) >= s.cfg.Sessions {
			return nil, fmt.Errorf("%w: %w: %d", producers.ErrUnavailable, ErrFull, s.cfg.Sessions)
		}
		one = &session{}
		s.open[name] = one
	}
	one.busy++
	return one, nil
}

func (s *Sessions) leaveSession(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.busy--
	one.last = time.Now()
}

// openTools opens the tools that keep something.
func (one *session) openTools(ctx context.Context, tools map[string]producers.Tool, opening producers.Session) error {
	for name, tool := range tools {
		keeps, ok := tool.(producers.SessionTool)
		if !ok {
			continue
		}
		if err := keeps.Open(ctx, opening); err != nil {
			return errors.Join(fmt.Errorf("%w: open a session of tool %s: %w", producers.ErrUnavailable, name, err), one.closeTools(ctx, opening.Episode))
		}
		one.opened = append(one.opened, keeps)
	}
	one.ready = true
	return nil
}

func (one *session) closeTools(ctx context.Context, name string) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), producers.CloseLimit)
	defer cancel()
	var faults []error
	for _, tool := range one.opened {
		faults = append(faults, tool.Close(closing, name))
	}
	one.opened, one.ready = nil, false
	return errors.Join(faults...)
}

// Close ends a session, after its call if there is one. If there is none of the name, it has ended already.
func (s *Sessions) Close(ctx context.Context, name string) error {
	return s.closeSession(ctx, name, func(*session) bool { return true })
}

// closeSession ends a session for which over is true once its call has ended. It keeps its name until its tools are closed: a call that comes
// meanwhile waits, and opens them anew.
func (s *Sessions) closeSession(ctx context.Context, name string, over func(*session) bool) error {
	s.mu.Lock()
	one := s.open[name]
	s.mu.Unlock()
	if one == nil {
		return nil
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	s.mu.Lock()
	goesOn := s.open[name] != one || !over(one)
	s.mu.Unlock()
	if goesOn {
		return nil
	}
	err := one.closeTools(ctx, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.busy == 0 {
		delete(s.open, name)
	}
	return err
}
