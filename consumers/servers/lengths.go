package servers

import (
	"context"
	"errors"
	"fmt"
)

// lengths are a server's bounds on a sequence. They are read anew whenever the server is brought up.
type lengths struct {
	// most is the longest sequence that the server is asked for; 0 is no bound. kept is how many positions of the server's own bound lie
	// beyond.
	most, kept int
	// learnt is whether most was learnt from an answer, and is not the bound that the server reports.
	learnt bool
	// narrow is where an answer ended far below the context; 0 where none did.
	narrow int
}

// farBelow is the share of the expected length below which an answer's end is no want of room: the server has another context than was
// asked for.
const farBelow = 0.5

// learnBound notes that the server's own bound ended an answer at so many tokens. It returns an error where that is far below the length
// that is expected of the server: then the server admits no further call, and its keeper takes it out.
func (s *server) learnBound(at int) error {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &s.state.lengths
	expected := p.maxLen
	if l.most > 0 && !l.learnt {
		expected = min(expected, l.most)
	}
	if p.cfg.Longest > 0 {
		expected = min(expected, p.cfg.Longest)
	}
	if float64(at) < farBelow*float64(expected) {
		l.narrow = at
		s.state.swapping = true
		s.kickKeeper()
		return narrowFault(at, expected)
	}
	most := max(at-l.kept, 1)
	if l.most > 0 && most >= l.most {
		return nil
	}
	if !l.learnt {
		p.log.Warn("an inference server has room for fewer tokens than its context: longer answers end as \"length\" there",
			"server", s.name, "tokens", at, "context", l.most+l.kept, "episodes", p.cfg.Longest, "do", moreRoom)
	}
	l.most, l.learnt = most, true
	p.metrics.MaxTokens.WithLabelValues(s.name).Set(float64(most))
	return nil
}

// moreRoom is what helps a server that has room for fewer tokens than its context.
const moreRoom = "give it more memory for keys and values (--mem-fraction-static, --gpu-memory-utilization), or lower trainer.limits.max_tokens"

// errNarrow is a server whose answers end far below the length that is expected of it.
var errNarrow = errors.New("its answers end far below its context")

func narrowFault(at, expected int) error {
	return fmt.Errorf("%w: at %d tokens, of %d: it is another server than was meant, or %s", errNarrow, at, expected, moreRoom)
}

// checkNarrow is the fault of a server of which an answer ended far below its context; the keeper remembers where.
func (s *server) checkNarrow() error {
	s.pool.mu.Lock()
	at, expected := s.state.lengths.narrow, s.pool.maxLen
	s.pool.mu.Unlock()
	if at == 0 {
		return nil
	}
	s.keeper.narrow = at
	return narrowFault(at, expected)
}

// probeLength refuses a server that was taken out since its answers ended far below its context, until it takes a sequence that is longer.
func (s *server) probeLength(ctx context.Context, p *probe) error {
	at := s.keeper.narrow
	if at == 0 {
		return nil
	}
	tokens := make([]int32, at+1)
	a, err := p.sampleOnce(ctx, &Query{Tokens: tokens, MaxTokens: 1, Temperature: 1})
	if n := Status(err); err != nil && n != 400 && n != 413 && n != 422 {
		return fmt.Errorf("ask for a sequence of %d tokens: %w", len(tokens), err)
	}
	if err != nil || len(a.Tokens) != 1 {
		return &SettingError{Setting: fmt.Sprintf("an answer ended at %d tokens, and it takes no sequence of %d: it is another server than was meant, or %s",
			at, len(tokens), moreRoom), Err: err}
	}
	s.keeper.narrow = 0
	return nil
}
