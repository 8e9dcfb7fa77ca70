package gateway

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/weir-rl/weir/internal/openai"
)

// A large request takes many times its bytes in memory until its messages are tokens. So few large requests are read and written into their
// contexts at the same time; further ones wait. A body is large from freeBody bytes on.
const (
	freeBody = 1 << 20
	// mostLargeOfSession bounds the large requests of a session, mostLarge those of all sessions.
	mostLargeOfSession = 2
	mostLarge          = 16
)

// largeBody is a body that waits for a place when it turns out to be large. A nil largeBody has no place.
type largeBody struct {
	*openai.TimedBody
	ctx    context.Context //nolint:containedctx // the request's, whose body this is
	places []chan struct{} // that a large request takes, in order
	left   int             // bytes that are read without a place

	mu   sync.Mutex
	held []chan struct{}
	// kept is whether the places are held beyond the end of the request's handler.
	kept bool
}

// newLargeBody returns the body of a session's request.
func (s *Server) newLargeBody(session *Session, r *http.Request, body *openai.TimedBody) *largeBody {
	return &largeBody{TimedBody: body, ctx: r.Context(), places: []chan struct{}{session.large, s.large}, left: freeBody}
}

func (b *largeBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		if err := b.takePlaces(); err != nil {
			return 0, err
		}
	} else if len(p) > b.left {
		p = p[:b.left]
	}
	n, err := b.TimedBody.Read(p)
	b.left -= n
	return n, err
}

// takePlaces waits for the places that are not taken yet. The time in which the body must arrive begins again then.
func (b *largeBody) takePlaces() error {
	if len(b.places) > 0 {
		defer b.Restart()
	}
	for len(b.places) > 0 {
		select {
		case b.places[0] <- struct{}{}:
		case <-b.ctx.Done():
			return fmt.Errorf("wait for other large requests: %w", context.Cause(b.ctx))
		}
		b.mu.Lock()
		b.held, b.places = append(b.held, b.places[0]), b.places[1:]
		b.mu.Unlock()
	}
	return nil
}

// keepPlaces holds the places until release, though the request's client leaves: its messages are in memory until they are tokens.
func (b *largeBody) keepPlaces() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = true
}

// endHandler gives the places back, unless they are kept.
func (b *largeBody) endHandler() {
	b.mu.Lock()
	kept := b.kept
	b.mu.Unlock()
	if !kept {
		b.release()
	}
}

// release gives the places back. It may be called more than once, when the body is read no further.
func (b *largeBody) release() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, place := range b.held {
		<-place
	}
	b.held = nil
}
