package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/internal/openai"
)

// turnstile is a Speaker at which large requests wait until they are let through.
type turnstile struct {
	spelling
	let chan struct{}

	mu           sync.Mutex
	inside, most int
}

func (s *turnstile) Begin(messages []chat.Message, tools []chat.Tool) (Talk, []int32, error) {
	if len(messages[0].Content) < freeBody {
		return s.spelling.Begin(messages, tools)
	}
	s.enter(1)
	<-s.let
	s.enter(-1)
	return s.spelling.Begin([]chat.Message{{Role: chat.User, Content: "long"}}, tools)
}

func (s *turnstile) countInside() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inside
}

func (s *turnstile) enter(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside += by
	s.most = max(s.most, s.inside)
}

// An episode whose agent sends many large requests at once does not use up the producer's memory, and a small request does not wait for
// them.
func TestFewLargeRequestsAreUnderWayAtTheSameTime(t *testing.T) {
	t.Parallel()
	gate := &turnstile{let: make(chan struct{})}
	s := NewServer(t.Context(), DefaultConfig(), "", slog.New(slog.DiscardHandler))
	policy := &recorded{says: func(context.Context, string) (string, error) { return "yes\n", nil }}
	session := s.OpenPrivate(t.Context(), gate, policy, 20)
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	defer s.Close(session)
	client := server.Client()
	ask := func(content string) int {
		res, err := client.Post(server.URL+"/e/"+session.Key()+"/v1/chat/completions", "application/json", strings.NewReader(chatOf("user", content)))
		if err != nil {
			return 0
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	const requests = 8
	answers := make(chan int, requests)
	for i := range requests {
		go func() { answers <- ask(fmt.Sprint(i) + strings.Repeat("x", freeBody)) }()
	}
	for range requests {
		require.Equal(t, http.StatusOK, ask("short"))
		gate.let <- struct{}{}
	}
	for range requests {
		require.Equal(t, http.StatusOK, <-answers)
	}
	require.LessOrEqual(t, gate.most, mostLargeOfSession)
}

// A large request whose client has left keeps its place until it is tokens: a client that gives up and asks again would have any number
// of large requests under way.
func TestALargeRequestKeepsItsPlaceWhenItsClientLeaves(t *testing.T) {
	t.Parallel()
	gate := &turnstile{let: make(chan struct{})}
	s := NewServer(t.Context(), DefaultConfig(), "", slog.New(slog.DiscardHandler))
	policy := &recorded{says: func(context.Context, string) (string, error) { return "yes\n", nil }}
	session := s.OpenPrivate(t.Context(), gate, policy, 20)
	ended := make(chan struct{}, mostLargeOfSession)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Handler().ServeHTTP(w, r)
		ended <- struct{}{}
	}))
	defer server.Close()
	defer s.Close(session)
	letAll := sync.OnceFunc(func() { close(gate.let) })
	defer letAll()
	for i := range mostLargeOfSession {
		ctx, leave := context.WithCancel(t.Context())
		body := strings.NewReader(chatOf("user", fmt.Sprint(i)+strings.Repeat("x", freeBody)))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/e/"+session.Key()+"/v1/chat/completions", body)
		require.NoError(t, err)
		go func() {
			if res, err := server.Client().Do(req); err == nil {
				_ = res.Body.Close()
			}
		}()
		require.Eventually(t, func() bool { return gate.countInside() == i+1 }, 10*time.Second, time.Millisecond)
		leave()
		<-ended
	}
	require.Len(t, session.large, mostLargeOfSession)
	letAll()
	require.Eventually(t, func() bool { return len(session.large) == 0 && len(s.large) == 0 }, 10*time.Second, time.Millisecond,
		"each place is given back")
}

// deadlines is a ResponseWriter that keeps the newest deadline of its connection.
type deadlines struct {
	http.ResponseWriter
	newest time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.newest = t
	return nil
}

// The wait for other large requests takes nothing of the time in which a request must arrive: a request that waited for half a minute was
// refused as no JSON.
func TestTheWaitForAPlaceTakesNoTimeOfTheBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{large: make(chan struct{}, mostLarge)}
		session := &Session{large: make(chan struct{}, 1)}
		session.large <- struct{}{}
		time.AfterFunc(time.Minute, func() { <-session.large })
		conn := &deadlines{}
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 2*freeBody)))
		body := s.newLargeBody(session, r, openai.NewTimedBody(conn, r, 4*freeBody))
		for read := 0; read < 2*freeBody; {
			n, err := body.Read(make([]byte, freeBody))
			require.NoError(t, err)
			require.Positive(t, time.Until(conn.newest), "the connection reads on")
			read += n
		}
		body.endHandler()
		require.Empty(t, session.large)
	})
}
