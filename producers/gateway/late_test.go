package gateway

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lateRecorded keeps the reports of requests after the end.
type lateRecorded struct {
	recorded
	counts   []int
	requests []string
}

func (l *lateRecorded) LateReporter() func(n int, request string) {
	return func(n int, request string) { l.counts, l.requests = append(l.counts, n), append(l.requests, request) }
}

// Row 1: each request of an agent after its episode's end is counted for its episode, without the key: before the session is closed and
// after. A key that was never an episode's counts for none.
func TestRequestsAfterTheEndAreCounted(t *testing.T) {
	s := NewServer(t.Context(), DefaultConfig(), "", slog.New(slog.DiscardHandler))
	rec := &lateRecorded{}
	session := s.OpenPrivate(t.Context(), spelling{}, rec, 10)
	ask := func(path, key string) int {
		body := strings.NewReader(`{"messages": [{"role": "user", "content": "x"}]}`)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, body)
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code
	}
	require.NoError(t, session.Finish(Outcome{Answer: "7"}))
	require.Empty(t, rec.counts)
	require.Equal(t, http.StatusGone, ask("/v1/chat/completions", session.Key()))
	s.Close(session)
	require.Equal(t, http.StatusUnauthorized, ask("/v1/chat/completions", session.Key()))
	require.Equal(t, http.StatusUnauthorized, ask("/e/"+session.Key()+"/v1/chat/completions", ""))
	require.Equal(t, http.StatusUnauthorized, ask("/v1/chat/completions", "another"))
	require.Equal(t, []int{1, 2, 3}, rec.counts)
	require.Equal(t, []string{"POST /v1/chat/completions", "POST /v1/chat/completions", "POST /e/.../v1/chat/completions"}, rec.requests)
}

// No more than mostEnded ended sessions are kept.
func TestEndedSessionsAreBounded(t *testing.T) {
	s := NewServer(t.Context(), DefaultConfig(), "", slog.New(slog.DiscardHandler))
	for range mostEnded + 10 {
		s.Close(s.OpenPrivate(t.Context(), spelling{}, &recorded{}, 1))
	}
	require.Len(t, s.ended.kept, mostEnded)
}
