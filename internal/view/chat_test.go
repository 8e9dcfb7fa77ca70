package view

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/streams"
)

// parrot answers as its functions do.
type parrot struct {
	ask    func(ctx context.Context, q ChatQuestion, tell func(ChatMove)) (*ChatEnd, error)
	closed chan struct{}
}

func (p *parrot) Offer(context.Context, *streams.Run) (*ChatOffer, error) {
	return &ChatOffer{Versions: []ChatVersion{{Key: "7", Name: "version 7"}}, Notes: []string{}, Tasks: []ChatTask{}, Agents: []string{}, Tools: []string{}}, nil
}

func (p *parrot) Tasks(context.Context) ([]ChatTask, error) {
	return []ChatTask{{Name: "ships", Tools: []string{}, Examples: []string{"what is it ?"}}}, nil
}

func (p *parrot) Ask(ctx context.Context, _ *streams.Run, q ChatQuestion, tell func(ChatMove)) (*ChatEnd, error) {
	return p.ask(ctx, q, tell)
}

func (p *parrot) Close() {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
}

// begin asks a question and leaves the answer open.
func begin(ctx context.Context, t *testing.T, s *Server, token, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.listener.Addr().String()+"/api/runs/demo/chat", bytes.NewBufferString(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	return res
}

const question = `{"version":"7","question":"what is it ?"}`

// A question is answered move by move, one at a time, and by the token alone; it ends when whoever asked is gone.
func TestAQuestionIsAnsweredMoveByMove(t *testing.T) {
	t.Parallel()
	goOn, gone := make(chan struct{}), make(chan error, 1)
	p := &parrot{closed: make(chan struct{})}
	p.ask = func(ctx context.Context, q ChatQuestion, tell func(ChatMove)) (*ChatEnd, error) {
		switch q.Question {
		case "wait":
			tell(ChatMove{Kind: "prompt", Text: "wait"})
			<-ctx.Done()
			gone <- ctx.Err()
			return nil, ctx.Err()
		case "refuse":
			return nil, errors.New("the run is not up")
		case "fail":
			tell(ChatMove{Kind: "prompt"})
			return nil, errors.New("the tool is gone")
		}
		tell(ChatMove{Kind: "policy", Text: "</script>" + q.Question})
		<-goOn
		tell(ChatMove{Kind: "tool", Tool: "search", Call: 1})
		return &ChatEnd{Answer: "42", Stop: "answer", Newest: 7, Oldest: 7}, nil
	}
	s := start(t, Run{Run: runfolder.Run{Name: "demo", Dir: t.TempDir()}, Chat: p})

	res := begin(t.Context(), t, s, s.token, question)
	require.Equal(t, http.StatusOK, res.StatusCode)
	lines := bufio.NewScanner(res.Body)
	next := func() (l chatLine) {
		require.True(t, lines.Scan())
		require.NoError(t, json.Unmarshal(lines.Bytes(), &l))
		return l
	}
	require.Equal(t, "</script>what is it ?", next().Move.Text, "before the next move is there")

	status, out := ask(t, s, "POST", "/api/runs/demo/chat", s.token, question)
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Contains(t, out["error"], "another question")

	close(goOn)
	require.Equal(t, "search", next().Move.Tool)
	require.Equal(t, "42", next().End.Answer)
	require.False(t, lines.Scan())
	require.NoError(t, res.Body.Close())

	for name, c := range map[string]struct {
		token, body string
		want        int
		why         string
	}{
		"without a token":  {"", question, 401, "token"},
		"no version":       {s.token, `{"question":"x"}`, 400, "version: none is chosen"},
		"no question":      {s.token, `{"version":"7"}`, 400, "question: 0 bytes"},
		"a long question":  {s.token, `{"version":"7","question":"` + strings.Repeat("x", maxQuestion+1) + `"}`, 400, "question: 16385 bytes"},
		"too hot":          {s.token, `{"version":"7","question":"x","temperature":11}`, 400, "temperature: 11"},
		"an unknown field": {s.token, `{"version":"7","question":"x","model":"y"}`, 400, "unknown field"},
		"a refusal":        {s.token, `{"version":"7","question":"refuse"}`, 400, "the run is not up"},
	} {
		status, out := ask(t, s, "POST", "/api/runs/demo/chat", c.token, c.body)
		require.Equal(t, c.want, status, name)
		require.Contains(t, out["error"], c.why, name)
	}
	res = begin(t.Context(), t, s, s.token, `{"version":"7","question":"fail"}`)
	said, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Contains(t, string(said), `{"error":"the tool is gone"}`)

	ctx, leave := context.WithCancel(t.Context())
	res = begin(ctx, t, s, s.token, `{"version":"7","question":"wait"}`)
	leave()
	require.ErrorIs(t, <-gone, context.Canceled)
	_ = res.Body.Close() // it was left
}

// A server that stops ends the episodes that go on, and frees what answers.
func TestQuestionsEndWithTheServer(t *testing.T) {
	t.Parallel()
	p := &parrot{closed: make(chan struct{})}
	begun := make(chan struct{})
	p.ask = func(ctx context.Context, _ ChatQuestion, tell func(ChatMove)) (*ChatEnd, error) {
		tell(ChatMove{Kind: "prompt"})
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s, err := Listen(Config{Listen: "127.0.0.1:0"}, Deps{Runs: []Run{{Run: runfolder.Run{Name: "demo", Dir: t.TempDir()}, Chat: p}}}, false)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	res := begin(t.Context(), t, s, s.token, question)
	<-begun
	stop()
	_, _ = io.ReadAll(res.Body) // how it ends does not matter: it ends
	require.NoError(t, res.Body.Close())
	require.NoError(t, <-ended)
	<-p.closed
}

func TestARunThatCannotBeAskedSaysSo(t *testing.T) {
	t.Parallel()
	s := start(t, Run{Run: runfolder.Run{Name: "demo", Dir: t.TempDir()}})
	status, out := ask(t, s, "GET", "/api/runs/demo/chat", "", "")
	require.Equal(t, http.StatusOK, status)
	require.Empty(t, out["versions"])
	require.Contains(t, out["notes"].([]any)[0], "cannot ask")
	status, out = ask(t, s, "POST", "/api/runs/demo/chat", s.token, question)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, out["error"], "cannot ask")
}
