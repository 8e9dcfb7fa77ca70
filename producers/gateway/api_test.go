package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const (
	minute = time.Minute // a guard, never the time that something takes
	tick   = time.Millisecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatChangesTheDistributionOrIsNotThereIsRefusedByName(t *testing.T) {
	t.Parallel()
	h := open(t, counting())
	const messages = `"model": "m", "messages": [{"role": "user", "content": "a"}]`
	for _, c := range []struct{ path, body, names string }{
		{"chat/completions", `{` + messages + `, "top_p": 0.5}`, "top_p"},
		{"chat/completions", `{` + messages + `, "top_k": 5}`, "top_k"},
		{"chat/completions", `{` + messages + `, "min_p": 0.1}`, "min_p"},
		{"chat/completions", `{` + messages + `, "frequency_penalty": 1}`, "frequency_penalty"},
		{"chat/completions", `{` + messages + `, "presence_penalty": 1}`, "presence_penalty"},
		{"chat/completions", `{` + messages + `, "logit_bias": {"1": 5}}`, "logit_bias"},
		{"chat/completions", `{` + messages + `, "response_format": {"type": "json_object"}}`, "response_format"},
		{"chat/completions", `{` + messages + `, "tool_choice": "required"}`, "tool_choice"},
		{"chat/completions", `{` + messages + `, "n": 2}`, "n is 2"},
		{"chat/completions", `{` + messages + `, "logprobs": true}`, "weir trajectory"},
		{"chat/completions", `{` + messages + `, "max_tokens": 0}`, "max_tokens"},
		{"chat/completions", `{` + messages + `, "stop": [""]}`, "stop"},
		{"chat/completions", `{` + messages + `, "nonsense": 1}`, "nonsense"},
		{"chat/completions", `{` + messages + `, "tools": [{"type": "function"}]}`, "tools[0]"},
		{"chat/completions", `{"messages": []}`, "messages"},
		{"chat/completions", `{"messages": [{"role": "narrator", "content": "a"}]}`, "narrator"},
		{"chat/completions", `{"messages": [{"role": "user", "content": "unwritable"}]}`, "chat template"},
		{"chat/completions", `{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`, "image_url"},
		{"chat/completions", `{`, "JSON"},
		{"responses", `{"model": "m", "input": "a", "top_p": 0.5}`, "top_p"},
		{"responses", `{"model": "m", "input": "a", "text": {"format": {"type": "json_schema"}}}`, "response_format"},
		{"responses", `{"model": "m", "input": "a", "background": true}`, "background"},
		{"responses", `{"model": "m", "input": "a", "previous_response_id": "resp_1"}`, "resp_1"},
		{"responses", `{"model": "m", "input": [{"type": "computer_call"}]}`, "computer_call"},
		{"responses", `{"model": "m", "input": [{"role": "user", "content": [{"type": "input_image"}]}]}`, "input_image"},
		{"responses", `{"model": "m", "input": [{"type": "function_call", "name": "f", "arguments": "no"}]}`, "input[0]"},
		{"responses", `{"model": "m"}`, "input"},
		{"messages", `{` + messages + `, "max_tokens": 9, "top_k": 5}`, "top_k"},
		{"messages", `{` + messages + `, "max_tokens": 9, "tool_choice": {"type": "any"}}`, "any"},
		{"messages", `{` + messages + `, "max_tokens": 9, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}`, "tools[0]"},
		{"messages", `{"messages": [{"role": "system", "content": "a"}]}`, "system"},
		{"messages", `{"messages": [{"role": "user", "content": [{"type": "image"}]}]}`, "image"},
		{"messages", `{"messages": [{"role": "user", "content": [{"type": "tool_use", "name": "f", "input": {}}]}]}`, "content[0]"},
		{"weir/finish", `{"reward": 1e999}`, "reward"},
		{"weir/finish", `{"score": 1}`, "score"},
		// Reader 10, finding 1: the trainer refused the episode as poisoned, and the agent heard nothing of it.
		{"weir/finish", `{"reward": -1000001}`, "reward is -1.000001e+06: want a number of at most 1e+06 by magnitude"},
		{"weir/finish", `{"rewards": {"style": 1e300}}`, "rewards.style is 1e+300"},
		{"weir/finish", `{"rewards": {"` + strings.Repeat("k", 257) + `": 1}}`, "has 257 bytes: want at most 256"},
		{"weir/finish", manyRewards(257), "rewards has 257 components: want at most 256"},
	} {
		status, body := h.post(t, c.path, c.body)
		require.Equal(t, http.StatusBadRequest, status, "%s %s: %s", c.path, c.body, body)
		require.Contains(t, body, c.names, c.body)
	}
	require.Empty(t, h.episode.all)
}

func TestParametersThatTheConfigurationIgnores(t *testing.T) {
	t.Parallel()
	h := open(t, counting())
	h.ignore = []string{"nonsense", "top_p"}
	status, body := h.post(t, "chat/completions", `{"messages": [{"role": "user", "content": "a"}], "nonsense": {}, "top_p": 0.5}`)
	require.Equal(t, http.StatusOK, status, body)
}

// caller asks for a call once, and then says done.
func caller(_ context.Context, context string) (string, error) {
	if strings.Contains(context, "tool:") {
		return "done", nil
	}
	return `call look {"at": 7}`, nil
}

func TestToolsByChatCompletions(t *testing.T) {
	t.Parallel()
	h := open(t, caller)
	const tools = `"tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]`
	_, body := h.post(t, "chat/completions", `{"messages": [{"role": "user", "content": "a"}], `+tools+`}`)
	var a chatAnswer
	require.NoError(t, json.Unmarshal([]byte(body), &a))
	require.Equal(t, "tool_calls", *a.Choices[0].FinishReason)
	require.Nil(t, a.Choices[0].Message.Content)
	call := a.Choices[0].Message.ToolCalls[0]
	require.Equal(t, "look", call.Function.Name)
	require.JSONEq(t, `{"at": 7}`, call.Function.Arguments)

	next := map[string]any{"role": "assistant", "content": nil, "tool_calls": a.Choices[0].Message.ToolCalls}
	said, err := json.Marshal([]any{
		map[string]string{"role": "user", "content": "a"}, next, map[string]string{"role": "tool", "tool_call_id": call.ID, "content": "seen"},
	})
	require.NoError(t, err)
	_, body = h.post(t, "chat/completions", `{"messages": `+string(said)+`, `+tools+`, "stream": true, "stream_options": {"include_usage": true}}`)
	events := eventsOf(body)
	require.Len(t, events, 4)
	require.Contains(t, events[0].data, `"content":"done"`)
	require.Contains(t, events[1].data, `"finish_reason":"stop"`)
	require.Contains(t, events[2].data, `"prompt_tokens"`)
	require.Equal(t, "[DONE]", events[3].data)
	require.Len(t, h.episode.all, 1)
	require.Equal(t, "user:a\ncall look {\"at\": 7}\ntool:seen\ndone\n", text(h.episode.all[0].tokens))
}

func TestToolsByResponses(t *testing.T) {
	t.Parallel()
	h := open(t, caller)
	const tools = `"tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}]`
	_, body := h.post(t, "responses", `{"model": "m", "instructions": "s", "input": "a", `+tools+`}`)
	var r struct {
		ID, Status string
		Output     []outputCall
	}
	require.NoError(t, json.Unmarshal([]byte(body), &r), body)
	require.Equal(t, "completed", r.Status)
	require.Equal(t, "function_call", r.Output[0].Type)
	_, body = h.post(t, "responses", `{"model": "m", "instructions": "s", "previous_response_id": "`+r.ID+`", "stream": true, `+tools+`,
		"input": [{"type": "function_call_output", "call_id": "`+r.Output[0].CallID+`", "output": "seen"}]}`)
	var names []string
	for _, e := range eventsOf(body) {
		names = append(names, e.name)
	}
	require.Equal(t, []string{
		"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta",
		"response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
	}, names)
	require.Len(t, h.episode.all, 1)
	require.Equal(t, "system:s\nuser:a\ncall look {\"at\": 7}\ntool:seen\ndone\n", text(h.episode.all[0].tokens))
	_, body = h.post(t, "responses", `{"model": "m", "stream": true, "input": [{"role": "developer", "content": "x"}, {"type": "message", "role": "user",
		"content": [{"type": "input_text", "text": "y"}]}], `+tools+`}`)
	require.Contains(t, body, "event: response.function_call_arguments.done")
	require.Equal(t, "system:x\nuser:y\ncall look {\"at\": 7}\n", text(h.episode.all[1].tokens))
}

func TestToolsByMessages(t *testing.T) {
	t.Parallel()
	h := open(t, caller)
	const tools = `"max_tokens": 99, "tools": [{"name": "look", "input_schema": {"type": "object"}}]`
	_, body := h.post(t, "messages", `{"model": "m", "system": [{"type": "text", "text": "s"}], "messages": [{"role": "user", "content": "a"}], `+tools+`}`)
	var m struct {
		StopReason string `json:"stop_reason"`
		Content    []toolBlock
	}
	require.NoError(t, json.Unmarshal([]byte(body), &m), body)
	require.Equal(t, "tool_use", m.StopReason)
	used, err := json.Marshal(m.Content)
	require.NoError(t, err)
	_, body = h.post(t, "messages", `{"model": "m", "system": "s", "stream": true, "messages": [{"role": "user", "content": "a"},
		{"role": "assistant", "content": `+string(used)+`}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "`+m.Content[0].ID+`",
		"content": [{"type": "text", "text": "seen"}]}]}], `+tools+`}`)
	var names []string
	for _, e := range eventsOf(body) {
		names = append(names, e.name)
	}
	require.Equal(t, []string{
		"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
	}, names)
	require.Len(t, h.episode.all, 1)
	require.Equal(t, "system:s\nuser:a\ncall look {\"at\": 7}\ntool:seen\ndone\n", text(h.episode.all[0].tokens))
	_, body = h.post(t, "messages/count_tokens", `{"model": "m", "messages": [{"role": "user", "content": "a"}]}`)
	require.JSONEq(t, `{"input_tokens": 7}`, body)
	_, body = h.post(t, "messages", `{"model": "m", "max_tokens": 9, "top_p": 0.1, "messages": [{"role": "user", "content": "a"}]}`)
	require.Contains(t, body, `"type":"invalid_request_error"`)
}

func TestATurnThatIsCutSaysSo(t *testing.T) {
	t.Parallel()
	h := open(t, func(context.Context, string) (string, error) { return "one two three", nil })
	for path, want := range map[string]string{
		"chat/completions": `"finish_reason":"length"`, "messages": `"stop_reason":"max_tokens"`,
	} {
		_, body := h.post(t, path, `{"messages": [{"role": "user", "content": "`+path+`"}], "max_tokens": 3}`)
		require.Contains(t, body, want)
		require.Contains(t, body, `"one"`)
	}
	_, body := h.post(t, "responses", `{"input": "a", "max_output_tokens": 3}`)
	require.Contains(t, body, `"status":"incomplete"`)
	_, body = h.post(t, "chat/completions", `{"messages": [{"role": "user", "content": "b"}], "stop": " two"}`)
	require.Contains(t, body, `"content":"one"`)
	require.Contains(t, body, `"finish_reason":"stop"`)
}

func TestEpisodesAreGivenToThoseWithTheKey(t *testing.T) {
	t.Parallel()
	s := NewServer(t.Context(), DefaultConfig(), "sesame", nil)
	claim := func(ctx context.Context, key string) (int, Offer) {
		w := httptest.NewRecorder()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/episodes", http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+key)
		s.Handler().ServeHTTP(w, r)
		var o Offer
		_ = json.Unmarshal(w.Body.Bytes(), &o)
		return w.Code, o
	}
	status, _ := claim(t.Context(), "wrong")
	require.Equal(t, http.StatusUnauthorized, status)
	offered := make(chan error, 1)
	go func() {
		offered <- s.Offer(t.Context(), Offer{Episode: "e1", Prompt: "p", World: rawJSON(`{"a":1}`)}, 0)
	}()
	status, o := claim(t.Context(), "sesame")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "e1", o.Episode)
	require.NoError(t, <-offered)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Offer(ctx, Offer{}, 0), context.Canceled)
}

type event struct{ name, data string }

func eventsOf(body string) (out []event) {
	var e event
	lines := bufio.NewScanner(strings.NewReader(body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "event: "):
			e.name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			e.data = line[len("data: "):]
		case line == "":
			out, e = append(out, e), event{}
		}
	}
	return out
}

// An episode may wait long for an agent. The agent that comes has all of its time then, and where none comes the fault says so.
func TestAnAgentThatComesLateHasAllOfItsTime(t *testing.T) {
	t.Parallel()
	s := NewServer(t.Context(), DefaultConfig(), "sesame", slog.New(slog.DiscardHandler))
	session := s.OpenPrivate(t.Context(), spelling{}, &recorded{}, 4)
	defer s.Close(session)
	offered := make(chan error, 1)
	go func() { offered <- s.Offer(t.Context(), Offer{APIKey: session.Key()}, 0) }()
	late := func() {
		session.mu.Lock()
		defer session.mu.Unlock()
		session.touched = time.Now().Add(-time.Hour)
	}
	require.Eventually(t, func() bool {
		late()
		return errors.Is(session.idleFault(time.Minute), ErrUnclaimed)
	}, time.Minute, time.Millisecond)
	r := httptest.NewRequest(http.MethodPost, "/episodes", nil)
	r.Header.Set("Authorization", "Bearer sesame")
	s.Handler().ServeHTTP(httptest.NewRecorder(), r)
	require.NoError(t, <-offered)
	require.NoError(t, session.idleFault(time.Minute), "its time begins when it has come")
	late()
	require.ErrorIs(t, session.idleFault(time.Minute), errIdle)
}

// manyRewards is an outcome with n components of a reward.
func manyRewards(n int) string {
	rewards := map[string]float64{}
	for i := range n {
		rewards[fmt.Sprint(i)] = 1
	}
	out, _ := json.Marshal(map[string]any{"rewards": rewards})
	return string(out)
}
