package gateway

import (
	"net/http"
	"sync"

	"github.com/weir-rl/weir/internal/openai"
)

// lateRecorder is a [Recorder] that counts requests after the end of its episode.
type lateRecorder interface {
	// LateReporter returns what takes the method and path of the n-th such request. It outlives the episode.
	LateReporter() func(n int, request string)
}

// lateRequests counts the requests of an agent after the end of its episode.
type lateRequests struct {
	report func(n int, request string) // nil reports nothing

	mu    sync.Mutex
	count int
}

// newLateRequests counts the late requests to an episode.
func newLateRequests(r Recorder) *lateRequests {
	if recorder, ok := r.(lateRecorder); ok {
		return &lateRequests{report: recorder.LateReporter()}
	}
	return &lateRequests{}
}

// addRequest counts a request.
func (l *lateRequests) addRequest(r *http.Request) {
	l.mu.Lock()
	l.count++
	n := l.count
	l.mu.Unlock()
	if l.report != nil {
		l.report(n, r.Method+" "+redactSecret(r.URL.Path))
	}
}

// refusesLate reports whether an error is the refusal of a request after the end of its episode.
func refusesLate(err error) bool { return err != nil && openai.AsError(err).Status == http.StatusGone }

// mostEnded bounds the episodes that are kept after their end, to tell a late request from a wrong key.
const mostEnded = 1024

// endedSessions are the newest sessions that have ended, by secret. Its zero value has none.
type endedSessions struct {
	kept  map[string]endedSession
	order [mostEnded]string
	next  int
}

// endedSession is left of a session. over is whether its episode has ended too; else another producer may go on with it.
type endedSession struct {
	late *lateRequests
	over bool
}

// addKey keeps the count of a session under a key of its, in the place of the oldest.
func (e *endedSessions) addKey(key string, s *Session) {
	if e.kept == nil {
		e.kept = map[string]endedSession{}
	}
	delete(e.kept, e.order[e.next])
	e.kept[key], e.order[e.next] = endedSession{s.late, s.isOver()}, key
	e.next = (e.next + 1) % mostEnded
}

// findEnded returns the count of the ended session that had a secret; nil where none of the newest had it.
func (s *Server) findEnded(secret string) *lateRequests {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended.kept[secret].late
}
