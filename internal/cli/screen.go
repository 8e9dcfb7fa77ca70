package cli

import (
	"io"
	"sync"
)

// screen is the terminal that a live view and the log share: while there is a view, the log's lines go above it.
type screen struct {
	to io.Writer

	mu    sync.Mutex
	above func(text string)
}

// Write passes on lines of the log.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	above := s.above
	s.mu.Unlock()
	if above == nil {
		return s.to.Write(p)
	}
	above(string(p))
	return len(p), nil
}

// printAbove sets the function that prints above the view; nil once there is none.
func (s *screen) printAbove(above func(text string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.above = above
}
