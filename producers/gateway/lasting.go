package gateway

import (
	"context"
	"errors"
	"sync"
	"time"
)

// An agent that came for its episode by itself lives on when the episode's producer dies. With a journal it goes on with the episode:
//
//	agent             producer A                    journal of the ticket          producer B
//	  │ POST /episodes   │                                │                            │
//	  │ ◄── key, URL ────┤ ── claim ────────────────────► │                            │
//	  │ ── request ────► │ ── ask, tokens, answer ──────► │  an answer goes out        │
//	  │ ◄── answer ──────┤        when it is stored       │                            │
//	  │ ── request ────► ✗ killed                         │                            │
//	  │ ── again ─────── 503 or no connection ──────────► │ ◄─── takes the ticket ─────┤
//	  │ ── again, with its key, at the same address ──────┼──────────────────────────► │ genuine, and the key of the last claim:
//	  │                                                   │ ── claim, asks, answers ─► │ the conversation is as it was
//	  │ ◄── the same answer, or the answer from its first stored token on ─────────────┤
//
// The key is of the run's secret, so that a producer knows an agent of another producer from a stranger: it lets the agent wait, and
// answers 503, which clients try again, where the episode is not at this producer. Where the agent does not come back for a while the
// episode is offered to the next agent, under another key; then the key of the earlier agent is refused for good.

// Keeper keeps notes of an episode for the producer that goes on with it.
type Keeper interface {
	// Notes are the notes of earlier producers, oldest first.
	Notes() [][]byte
	Note(text []byte)
	// StoreNotes returns when all that the episode has done is stored; it fails where another producer has the episode.
	StoreNotes(ctx context.Context) error
}

// lasting is the part of a [Session] whose agent may outlive its producer.
type lasting struct {
	keeper Keeper
	// former is the key of the agent that had the episode at the producer before, "" is none; inForce that of the agent that has it now.
	former, inForce string
	// returned is closed when the former agent has come back, ready when the agent's requests may be answered.
	returned, ready chan struct{}
	restoring       sync.WaitGroup
	past            past
	// writing is held from a move of the episode until it is noted, so that notes are in the order of the moves.
	writing sync.Mutex
	asks    int // number of the next request
	// finishing is held while the outcome is stored.
	finishing sync.Mutex
}

// newLasting reads the notes of earlier producers.
func newLasting(keys *keyring, keeper Keeper) *lasting {
	l := &lasting{keeper: keeper, past: readPast(keeper.Notes()), returned: make(chan struct{}), ready: make(chan struct{})}
	if l.past.claim != "" {
		l.former = keys.keyOf(l.past.claim)
	}
	l.asks = l.past.next
	return l
}

// isRestoring reports whether a request that is written is noted already.
func (l *lasting) isRestoring() bool {
	select {
	case <-l.ready:
		return false
	default:
		return true
	}
}

// keys are the keys under which agents may ask, or may have asked.
func (s *Session) keys() []string {
	if s.lasting == nil || s.lasting.former == "" {
		return []string{s.secret}
	}
	return []string{s.secret, s.lasting.former}
}

// admitKey waits until the requests of the agent with a key may be answered. It fails where another agent has the episode.
func (s *Session) admitKey(ctx context.Context, key string) error {
	l := s.lasting
	if l == nil {
		return nil
	}
	s.mu.Lock()
	if l.inForce == "" && key == l.former {
		s.resume()
	}
	ok := key == l.inForce
	s.mu.Unlock()
	if !ok {
		return errGone()
	}
	select {
	case <-l.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// resume has the former agent go on: the conversation is restored. The caller holds the lock.
func (s *Session) resume() {
	l := s.lasting
	l.inForce = l.former
	close(l.returned)
	s.noteActivity()
	l.restoring.Go(func() {
		defer close(l.ready)
		if err := s.restore(s.alive); err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.failed = err
			s.end(err)
		}
	})
}

var errReturned = errors.New("the agent that had the episode has come back")

// claimKey gives the episode to an agent that has come for it: the agent is told when that is stored.
func (s *Session) claimKey(ctx context.Context) error {
	if s == nil || s.lasting == nil {
		return nil
	}
	l := s.lasting
	s.mu.Lock()
	if l.inForce != "" && l.inForce != s.secret {
		s.mu.Unlock()
		return errReturned
	}
	first := l.inForce == ""
	l.inForce = s.secret
	s.mu.Unlock()
	if first {
		close(l.ready)
	}
	l.keeper.Note(encodeNote(note{Claim: nameOf(s.secret)}))
	return l.keeper.StoreNotes(ctx)
}

// awaitFormer waits for the agent that had the episode at the producer before, and reports whether no other agent is needed: the agent is
// back, or has posted its outcome.
func (s *Session) awaitFormer(ctx context.Context, within time.Duration) (bool, error) {
	if s == nil || s.lasting == nil || s.lasting.former == "" {
		return false, nil
	}
	l := s.lasting
	if l.past.outcome != nil {
		s.mu.Lock()
		if l.inForce == "" {
			s.resume()
		}
		s.mu.Unlock()
		return true, nil
	}
	if len(l.past.asks) == 0 {
		return false, nil // it has asked nothing that would be lost, and was perhaps never told of the episode
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-l.returned:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// hasReturned is closed when the former agent is back; nil where nobody can come back.
func (s *Session) hasReturned() <-chan struct{} {
	if s == nil || s.lasting == nil {
		return nil
	}
	return s.lasting.returned
}
