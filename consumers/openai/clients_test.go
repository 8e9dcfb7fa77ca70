package openai

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// backwards answers the later of two calls first.
type backwards struct{ second chan struct{} }

func (backwards) Version() int64 { return 1 }

func (b backwards) Generate(ctx context.Context, r *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	if r.Seed == 9 { // the first has the request's own
		select {
		case <-b.second:
		case <-ctx.Done():
			return ctx.Err()
		}
	} else {
		defer close(b.second)
	}
	return emit(&schemas.GenerateChunk{Tokens: []int32{'x'}, Logprobs: []float32{-1}, Versions: []int32{1}, Done: true, Stop: schemas.GenerateLength})
}

// Section 5 of the servers' review: OpenAI's own accumulator takes the choices of a stream as they come for a list in order.
func TestEachChoiceOfAStreamIsToldOfBeforeAnyGoesOn(t *testing.T) {
	t.Parallel()
	h := New(DefaultConfig(), backwards{make(chan struct{})}, letters{}, nil, nil).Handler()
	w := post(t, h, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], "n": 2, "seed": 9, "stream": true}`)
	events, done := stream(t, w.Body)
	require.True(t, done)
	var order []int
	roles := map[int]string{}
	for _, e := range events {
		c := decode[chatAnswer](t, []byte(e)).Choices[0]
		order = append(order, c.Index)
		roles[c.Index] += c.Delta.Role
	}
	require.Equal(t, []int{0, 1, 1, 0}, order)
	require.Equal(t, map[int]string{0: "assistant", 1: "assistant"}, roles)
}

// Section 5 of the servers' review: what changes nothing is taken here as the gateway takes it, and an option for evaluation takes what would
// shape the distribution, and leaves it undone.
func TestSettingsThatAreTaken(t *testing.T) {
	t.Parallel()
	y := &typist{at: 3, says: func(*schemas.GenerateRequest) string { return "hello" }}
	const chats, said = "/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], `
	w := post(t, typing(y), chats, said+`"reasoning_effort": "low", "verbosity": "low", "prompt_cache_retention": "24h", "prediction": null,
		"modalities": ["text"], "audio": null, "moderation": null, "parallel_tool_calls": true}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	for more, name := range map[string]string{`"modalities": ["text", "audio"]`: "modalities", `"web_search_options": {}`: "web_search_options"} {
		w = post(t, typing(y), chats, said+more+`}`)
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), name)
	}

	cfg := DefaultConfig()
	cfg.Shaping = ShapingIgnore
	require.NoError(t, cfg.validateBounds(1))
	h := New(cfg, y, letters{}, nil, nil).Handler()
	const shaped = `"top_p": 0.9, "response_format": {"type": "json_object"}, "tool_choice": "required"`
	w = post(t, h, chats, said+shaped+`}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, "top_p, response_format, tool_choice", w.Header().Get("Weir-Ignored"))
	w = post(t, h, chats, said+shaped+`, "stream": true}`)
	require.Equal(t, "top_p, response_format, tool_choice", w.Header().Get("Weir-Ignored"))
	w = post(t, h, chats, said+shaped+`, "return_token_ids": true}`)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), "return_token_ids asks for samples to train on")
	w = post(t, h, chats, said+`"return_token_ids": true}`)
	require.Equal(t, http.StatusOK, w.Code)
	require.Empty(t, w.Header().Get("Weir-Ignored"))
	cfg.Shaping = "perhaps"
	require.ErrorContains(t, cfg.validateBounds(1), "shaping")

	tok, c := chatML(t)
	const call = `<tool_call>{"name": "search", "arguments": {}}</tool_call>`
	s := &speaker{tok: tok, says: call + call + "<|im_end|>"}
	h = New(cfg, s, tok, nil, slog.New(slog.DiscardHandler)).WithChat(c).Handler()
	const tools = `"tools": [{"type": "function", "function": {"name": "search"}}]`
	for more, calls := range map[string]int{``: 2, `, "parallel_tool_calls": true`: 2, `, "parallel_tool_calls": false`: 1} {
		got := decode[chatAnswer](t, post(t, h, chats, said+tools+more+`}`).Body.Bytes())
		require.Len(t, got.Choices[0].Message.ToolCalls, calls)
	}
}

// waiting answers when it is let.
type waiting struct{ let chan struct{} }

func (waiting) Version() int64 { return 1 }

func (g waiting) Generate(_ context.Context, _ *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	<-g.let
	return emit(&schemas.GenerateChunk{Tokens: []int32{'x'}, Logprobs: []float32{-1}, Versions: []int32{1}, Done: true, Stop: schemas.GenerateLength})
}

func TestAStreamThatWaitsSaysThatItIsAlive(t *testing.T) {
	t.Parallel()
	g := waiting{make(chan struct{})}
	o := New(DefaultConfig(), g, letters{}, nil, nil)
	o.ping = time.Millisecond
	server := httptest.NewServer(o.Handler())
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/completions", strings.NewReader(`{"prompt": "a", "stream": true}`))
	require.NoError(t, err)
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	ping := make([]byte, len(": ping\n\n"))
	_, err = io.ReadFull(res.Body, ping)
	require.NoError(t, err)
	require.Equal(t, ": ping\n\n", string(ping))
	close(g.let)
	rest, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Contains(t, string(rest), `"text":"x"`)
	require.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"))
}
