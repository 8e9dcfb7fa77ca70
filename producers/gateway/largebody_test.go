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

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/chat"
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
