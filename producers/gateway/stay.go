package gateway

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/weir-rl/weir/internal/openai"
)

const (
	// holdFor is how long the request of an agent whose episode is not here waits for it: the producer that had it may have died, and its
	// ticket is on its way. mostHeld bounds such requests.
	holdFor  = 20 * time.Second
	mostHeld = 1024
	// lookEvery is how often it is looked whether the episode of a request that waits is over.
	lookEvery = 2 * time.Second
	// knockFor is how long an agent whose episode is on its way counts after its newest request: a client that tries again waits for 8 s at
	// most. An episode that no agent has come for in unclaimedFor makes room meanwhile.
	// An agent that has asked for as long as knockMost counts no more: its episode is with another producer, or nobody takes its ticket.
	knockFor     = 10 * time.Second
	knockMost    = 3 * time.Minute
	unclaimedFor = time.Second
)

// stay is a server's knowledge of agents that may outlive their producers.
type stay struct {
	keys *keyring
	// goesOn reports whether an episode may go on at a producer; nil is that any may.
	goesOn func(ctx context.Context, episode string) (bool, error)
	// open has the sessions of their episodes, by episode.
	open map[string]*Session
	// changed is closed, and made anew, when a session opens; gone is closed when the server listens no more.
	changed, gone chan struct{}
	held          int
	holdFor       time.Duration
	// knocked is when an agent asked last whose episode is not here and may come, the zero time is never; began is since when it asks, by key.
	knocked time.Time
	began   map[string]time.Time
}

func newStay() stay {
	return stay{open: map[string]*Session{}, began: map[string]time.Time{}, changed: make(chan struct{}), gone: make(chan struct{}), holdFor: holdFor}
}

// closeEpisode lets go of a session.
func (s *stay) closeEpisode(session *Session) {
	if s.open[session.episode] == session {
		delete(s.open, session.episode)
	}
}

// release ends the waits of requests.
func (s *stay) release() {
	select {
	case <-s.gone:
	default:
		close(s.gone)
	}
}

// Stay has the server listen from now on, and know the agents of the run's other producers, which share the secret. goesOn reports whether
// an episode may go on at a producer; nil is that any may.
func (s *Server) Stay(secret []byte, goesOn func(ctx context.Context, episode string) (bool, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stay.keys, s.stay.goesOn = &keyring{secret}, goesOn
	if s.retired {
		return nil
	}
	return s.startListening()
}

// OpenLasting is Open of the session of an episode whose agent may outlive this producer, or has outlived another. Without [Server.Stay] it
// is Open.
func (s *Server) OpenLasting(
	ctx context.Context, speaker Speaker, recorder Recorder, most int, episode string, keeper Keeper,
) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.startListening(); err != nil {
		return nil, err
	}
	if s.stay.keys == nil {
		return s.openSession(ctx, speaker, recorder, most), nil
	}
	session := newSession(ctx, speaker, recorder, most)
	session.secret, session.episode, session.lasting = s.stay.keys.newKey(episode), episode, newLasting(s.stay.keys, keeper)
	s.addSession(session)
	s.stay.open[episode] = session
	s.forgetKnocks(episode)
	close(s.stay.changed)
	s.stay.changed = make(chan struct{})
	return session, nil
}

// findSession returns the session of a key. Where there is none, wait is closed when that may have changed, and nil where it will not.
func (s *Server) findSession(key string) (session *Session, wait <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session := s.sessions[key]; session != nil {
		return session, nil, nil
	}
	episode := s.stay.keys.episodeOf(key)
	switch {
	case episode == "":
		return nil, nil, openai.Refusal(http.StatusUnauthorized, "authentication_error", "invalid_api_key",
			"no episode has this key: it has ended, or the key is another's")
	case s.stay.open[episode] != nil, s.ended.kept[key].over:
		return nil, nil, errGone()
	}
	return nil, s.stay.changed, openai.Refusal(http.StatusServiceUnavailable, "server_error", "unavailable",
		"the episode is not at this producer: ask again, it may be on its way")
}

// awaitSession returns the session of a request. The agent of another producer's episode waits for a while whether the episode comes here:
// clients try again where they are refused for want of it.
func (s *Server) awaitSession(r *http.Request) (*Session, error) {
	key := secretOf(r)
	session, wait, err := s.findSession(key)
	if wait != nil && s.holdRequest(1) {
		defer s.holdRequest(-1)
		timer, look := time.NewTimer(s.stay.holdFor), time.NewTicker(lookEvery)
		defer timer.Stop()
		defer look.Stop()
		if s.isOverElsewhere(r.Context(), key) {
			return nil, errGone()
		}
		s.noteKnock(key)
		for held := true; wait != nil && held; {
			select {
			case <-look.C:
				if s.isOverElsewhere(r.Context(), key) {
					return nil, errGone()
				}
				s.noteKnock(key)
			case <-wait:
				session, wait, err = s.findSession(key)
			case <-timer.C:
				held = false
			case <-s.stay.gone:
				held = false
			case <-r.Context().Done():
				held = false
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if err := session.admitKey(r.Context(), key); err != nil {
		return nil, err
	}
	return session, nil
}

// isOverElsewhere reports whether no producer can go on any more with the episode of a genuine key, which is not here: it was closed, or its
// trajectory is stored.
func (s *Server) isOverElsewhere(ctx context.Context, key string) bool {
	s.mu.Lock()
	goesOn, episode := s.stay.goesOn, s.stay.keys.episodeOf(key)
	s.mu.Unlock()
	if goesOn == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	on, err := goesOn(ctx, episode)
	return err == nil && !on
}

// noteKnock notes that the agent with a key asks, whose episode is not here and may come.
func (s *Server) noteKnock(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.stay.began) > mostHeld {
		clear(s.stay.began)
	}
	if _, known := s.stay.began[key]; !known {
		s.stay.began[key] = now
	}
	if now.Sub(s.stay.began[key]) < knockMost {
		s.stay.knocked = now
	}
}

// forgetKnocks forgets since when the agents of an episode have asked: the episode is here. The caller holds the lock.
func (s *Server) forgetKnocks(episode string) {
	maps.DeleteFunc(s.stay.began, func(key string, _ time.Time) bool { return s.stay.keys.episodeOf(key) == episode })
}

// agentsKnock reports whether agents ask whose episodes are not here and may come.
func (s *Server) agentsKnock() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.stay.knocked.IsZero() && time.Since(s.stay.knocked) < knockFor
}

// holdRequest counts the requests that wait; false is that there are too many.
func (s *Server) holdRequest(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && s.stay.held >= mostHeld {
		return false
	}
	s.stay.held += n
	return true
}

// isOver reports whether an episode ended with its session: its outcome is there, or its time has passed. Any other may go on at another
// producer, where its agent may outlive this.
func (s *Session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	// An error of the policy that ended alive may be a time limit of its own.
	return s.posted || errors.Is(s.given.Err(), context.DeadlineExceeded) || errors.Is(context.Cause(s.given), context.DeadlineExceeded)
}
