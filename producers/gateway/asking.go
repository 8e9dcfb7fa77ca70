package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"

	"github.com/weir-rl/weir/internal/openai"
	"github.com/weir-rl/weir/schemas"
)

// asking is a request while it is answered, and its answer.
type asking struct {
	done   chan struct{}
	cancel context.CancelFunc
	// waiting counts the clients that wait for the answer or are being sent it; delivered says that a client has it.
	waiting   int
	delivered bool
	retried   bool // a client that said so has come for it again
	refusals  int  // by a limit, before it was asked
	reply     *reply
	err       error
}

// tries is how often a client says that it has asked before, by the header of OpenAI's and Anthropic's own clients.
type tries int

const (
	untold   tries = -1 // a client without the header
	firstTry tries = 0
)

// askPolicy answers a request. A client that got no answer and asks again gets the answer that was sampled for it; clients that ask the
// same at the same time, and say that each asks for the first time, get an answer each. delivered is to be called with whether the answer
// reached the client.
func (s *Session) askPolicy(ctx context.Context, r *request) (answer *reply, delivered func(bool), err error) {
	for try := r.tries; ; try = firstTry {
		if err := s.awaitWithdrawn(ctx, r); err != nil {
			return nil, nil, err
		}
		a, err := s.joinRequest(r, try)
		if err != nil {
			return nil, nil, err
		}
		select {
		case <-a.done:
		case <-ctx.Done():
		}
		switch answered, again := s.awaitAnswer(ctx, a); {
		case answered:
			return a.reply, func(ok bool) { s.noteDelivery(a, ok) }, nil
		case again:
			continue // the client that asked before left, and the sampling ended with it just now
		}
		if err := context.Cause(ctx); err != nil {
			return nil, nil, err
		}
		if errors.Is(a.err, context.Canceled) {
			return nil, nil, errGone()
		}
		return nil, nil, a.err
	}
}

// errGone returns the refusal of a request after the end of the episode.
func errGone() error {
	return openai.Refusal(http.StatusGone, "invalid_request_error", "episode_over", "%v", errOver)
}

// awaitAnswer reports whether a client has its answer, and takes a client that has none out of the waiting clients. again says that the
// client is still there, and only has to ask anew. A client that leaves after this look is [Session.deliver]'s.
func (s *Session) awaitAnswer(ctx context.Context, a *asking) (answered, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteActivity()
	left := ctx.Err() != nil
	if !left && a.err == nil {
		return true, false
	}
	if a.waiting--; a.waiting == 0 && left {
		if a.reply == nil && a.err == nil {
			s.withdrawn[a] = struct{}{} // until it is settled
		}
		a.cancel() // nobody is left to read it
	}
	return false, !left && errors.Is(a.err, context.Canceled) && s.alive.Err() == nil
}

// awaitWithdrawn waits, where a request may go on in a context that another samples in, until the requests whose clients left have left
// their contexts: the client may have come again.
func (s *Session) awaitWithdrawn(ctx context.Context, r *request) error {
	for {
		withdrawn := s.findWithdrawn(r)
		if withdrawn == nil {
			return nil
		}
		select {
		case <-withdrawn.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// findWithdrawn returns a request whose clients left and which samples still, if the request r may go on in a context that is sampled in;
// else nil.
func (s *Session) findWithdrawn(r *request) *asking {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.threads, func(t *thread) bool { return t.busy && t.begins(r) }) {
		return nil
	}
	for a := range s.withdrawn {
		return a
	}
	return nil
}

// noteDelivery notes whether an answer reached its client.
func (s *Session) noteDelivery(a *asking, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteActivity()
	a.waiting--
	a.delivered = a.delivered || ok
}

// joinRequest finds the running request that asks for the same, or begins a new one.
func (s *Session) joinRequest(r *request, try tries) (*asking, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteActivity()
	if s.posted || s.alive.Err() != nil {
		return nil, errGone()
	}
	key := r.requestKey()
	if a := s.findAnswering(key, try); a != nil {
		r.body.release()
		a.waiting++
		a.retried = a.retried || try > firstTry
		return a, nil
	}
	if s.replies >= s.most {
		s.noteLimit(schemas.StopTurns)
		return nil, openai.Refusal(http.StatusForbidden, "invalid_request_error", "turn_limit",
			"%v: %d; trainer.limits.max_turns bounds them", errBounds, s.most)
	}
	t := s.matchThread(r)
	ctx, cancel := context.WithCancel(s.alive)
	a := &asking{done: make(chan struct{}), cancel: cancel, waiting: 1, refusals: s.refusals}
	s.asked[key] = append(s.asked[key], a)
	s.replies++
	s.running++
	r.body.keepPlaces()
	go func() {
		defer cancel()
		t, reply, err := s.continueThread(ctx, t, r)
		s.settleRequest(t, r, a, reply, err)
	}()
	return a, nil
}

// findAnswering returns the request that answers a client which asks for the same as others did; nil where it is to be sampled for the
// client. First come answers that no client got, since the client that asked for them has left. Answers that others wait for, or have got,
// are theirs: only a client that says that it asks again, or does not say, takes it for its own. The caller holds the lock.
func (s *Session) findAnswering(key [sha256.Size]byte, try tries) *asking {
	const (
		lost    = iota + 1 // delivered, as far as is known here
		joined             // a client that came again waits for it already
		waited             // a client waits for it
		dropped            // nobody got it
	)
	var best *asking
	rank := 0
	for i, a := range s.asked[key] {
		as := 0
		switch {
		case a.waiting == 0 && !a.delivered && a.err == nil:
			as = dropped
		case a.waiting == 0 && !a.delivered && try > firstTry && rank < dropped:
			// Its sampling ended when its client left. Its place is the client's that comes again, whatever others ask meanwhile.
			s.asked[key] = append(s.asked[key][:i:i], s.asked[key][i+1:]...)
			return nil
		case try == firstTry || a.err != nil:
		case a.waiting > 0 && a.retried:
			as = joined
		case a.waiting > 0:
			as = waited
		case try > firstTry:
			as = lost
		}
		if as > rank || as == lost && rank == lost {
			best, rank = a, as
		}
	}
	return best
}

// mostGivenUp bounds the requests that a session keeps of clients that left: a client that comes again later asks anew.
const mostGivenUp = 64

// givenUp is a request whose clients left before it was answered.
type givenUp struct {
	key    [sha256.Size]byte
	asking *asking
}

// noteGivenUp keeps a request whose clients left, and forgets the oldest where there are too many. The caller holds the lock.
func (s *Session) noteGivenUp(key [sha256.Size]byte, a *asking) {
	s.givenUp = append(s.givenUp, givenUp{key, a})
	if len(s.givenUp) > mostGivenUp {
		s.forgetAsking(s.givenUp[0].key, s.givenUp[0].asking)
		s.givenUp = slices.Delete(s.givenUp, 0, 1)
	}
}

// forgetAsking forgets a request that has no answer. The caller holds the lock.
func (s *Session) forgetAsking(key [sha256.Size]byte, a *asking) {
	left := slices.DeleteFunc(s.asked[key], func(other *asking) bool { return other == a })
	if len(left) == 0 {
		delete(s.asked, key)
		return
	}
	s.asked[key] = left
}
