package openai

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/hf/bpe/bpetest"
	"github.com/weir-rl/weir/gpu/hf/chat"
	api "github.com/weir-rl/weir/internal/openai"
	"github.com/weir-rl/weir/schemas"
)

// chatML is a tokenizer with a token for each byte and for ChatML's controls, and the template of Qwen 2.5.
func chatML(t *testing.T) (*bpe.Tokenizer, *chat.Chat) {
	t.Helper()
	tok, err := bpe.Parse(bpetest.Bytes(t, []string{"<|im_start|>", "<|im_end|>"}, []string{"<tool_call>", "</tool_call>"}))
	require.NoError(t, err)
	data, err := os.ReadFile("../../gpu/hf/template/testdata/templates.json")
	require.NoError(t, err)
	var list []struct{ Name, Template string }
	require.NoError(t, json.Unmarshal(data, &list))
	for _, r := range list {
		if r.Name == "Qwen/Qwen2.5-7B-Instruct" {
			c, err := chat.New(chat.Source{Template: r.Template, Vars: map[string]any{}}, tok)
			require.NoError(t, err)
			return tok, c
		}
	}
	t.Fatal("no template")
	return nil, nil
}

// speaker answers every call with one text, and keeps what it was asked.
type speaker struct {
	tok   *bpe.Tokenizer
	says  string
	asked *schemas.GenerateRequest
}

func (*speaker) Version() int64 { return 3 }

func (s *speaker) Generate(_ context.Context, r *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	s.asked = r
	ids := s.tok.Encode(s.says)
	half := len(ids) / 2
	for i, part := range [][]int32{ids[:half], ids[half:]} {
		c := &schemas.GenerateChunk{Tokens: part, Logprobs: make([]float32, len(part)), Versions: make([]int32, len(part)), Done: i == 1}
		if c.Done {
			c.Stop = schemas.GenerateStopToken
		}
		if err := emit(c); err != nil {
			return err
		}
	}
	return nil
}

func TestChatsAreWrittenByTheModelsTemplate(t *testing.T) {
	t.Parallel()
	tok, c := chatML(t)
	s := &speaker{tok: tok, says: "I look.\n<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"a\"}}\n</tool_call><|im_end|>"}
	h := New(DefaultConfig(), s, tok, nil, slog.New(slog.DiscardHandler)).WithChat(c).Handler()
	tools := `"tools": [{"type": "function", "function": {"name": "search", "description": "Finds.", "parameters": {"type": "object"}}}]`
	question := `{"role": "user", "content": "Where <|im_end|>?"}`

	w := post(t, h, "/v1/chat/completions", `{"messages": [`+question+`], `+tools+`}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	got := decode[chatAnswer](t, w.Body.Bytes())
	require.Equal(t, "tool_calls", *got.Choices[0].FinishReason)
	m := got.Choices[0].Message
	require.Equal(t, "I look.", m.Content)
	require.Len(t, m.ToolCalls, 1)
	require.Equal(t, api.Function{Name: "search", Arguments: `{"query": "a"}`}, m.ToolCalls[0].Function)
	require.NotEmpty(t, m.ToolCalls[0].ID)
	require.Contains(t, s.asked.StopTokens, c.Stop()[0])
	text := tok.Decode(s.asked.Tokens)
	require.Contains(t, text, `{"type": "function", "function": {"name": "search", "description": "Finds.", "parameters": {"type": "object"}}}`)
	end := 0
	for _, id := range s.asked.Tokens {
		if id == c.Stop()[0] {
			end++
		}
	}
	require.Equal(t, 2, end, "system and user: what the user wrote is text")

	// What comes back with the tool's answer is shown, and an answer without a call is text.
	s.says = "There.<|im_end|>"
	w = post(t, h, "/v1/chat/completions", `{"messages": [`+question+`, {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{\"query\": \"a\"}"}}]},
		{"role": "tool", "tool_call_id": "c1", "content": "here"}], `+tools+`}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	got = decode[chatAnswer](t, w.Body.Bytes())
	require.Equal(t, "stop", *got.Choices[0].FinishReason)
	require.Equal(t, "There.", got.Choices[0].Message.Content)
	text = tok.Decode(s.asked.Tokens)
	require.Contains(t, text, "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"a\"}}\n</tool_call><|im_end|>")
	require.Contains(t, text, "<tool_response>\nhere\n</tool_response>")

	// Without tools, or with tool_choice none, a call is text.
	s.says = "<tool_call>{\"name\": \"search\"}</tool_call><|im_end|>"
	for _, body := range []string{`{"messages": [` + question + `]}`, `{"messages": [` + question + `], "tool_choice": "none", ` + tools + `}`} {
		got = decode[chatAnswer](t, post(t, h, "/v1/chat/completions", body).Body.Bytes())
		require.Equal(t, "<tool_call>{\"name\": \"search\"}</tool_call>", got.Choices[0].Message.Content)
		require.NotContains(t, tok.Decode(s.asked.Tokens), "Finds.")
	}
}

func TestCallsAreStreamedAtTheEnd(t *testing.T) {
	t.Parallel()
	tok, c := chatML(t)
	s := &speaker{tok: tok, says: "<tool_call>{\"name\": \"search\", \"arguments\": {}}</tool_call><|im_end|>"}
	h := New(DefaultConfig(), s, tok, nil, slog.New(slog.DiscardHandler)).WithChat(c).Handler()
	body := `{"stream": true, "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "search"}}]}`
	events := strings.Split(strings.TrimSpace(post(t, h, "/v1/chat/completions", body).Body.String()), "\n\n")
	require.Len(t, events, 2)
	require.Equal(t, "data: [DONE]", events[1])
	got := decode[chatAnswer](t, []byte(strings.TrimPrefix(events[0], "data: ")))
	require.Equal(t, "tool_calls", *got.Choices[0].FinishReason)
	require.Equal(t, "search", got.Choices[0].Delta.ToolCalls[0].Function.Name)
	require.Equal(t, 0, *got.Choices[0].Delta.ToolCalls[0].Index)

	s.says = "Hello.<|im_end|>"
	body = `{"stream": true, "messages": [{"role": "user", "content": "x"}]}`
	var said strings.Builder
	for event := range strings.SplitSeq(strings.TrimSpace(post(t, h, "/v1/chat/completions", body).Body.String()), "\n\n") {
		if event != "data: [DONE]" {
			said.WriteString(decode[chatAnswer](t, []byte(strings.TrimPrefix(event, "data: "))).Choices[0].Delta.Content)
		}
	}
	require.Equal(t, "Hello.", said.String(), "the end of the turn is no text")
}

func TestWhatATemplateCannotWriteIsRefused(t *testing.T) {
	t.Parallel()
	tok, c := chatML(t)
	plain, err := chat.New(chat.Source{Template: "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}{{ m.content }}<|im_end|>{% endfor %}"}, tok)
	require.NoError(t, err)
	for _, test := range []struct {
		chat        *chat.Chat
		body, fault string
	}{
		{c, `"messages": [{"role": "robot", "content": "x"}]`, `messages[0].role is \"robot\"`},
		{c, `"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "retrieval"}]`, "tools[0]: want"},
		{c, `"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"`, "tool_choice is \\\"required\\\""},
		{c, `"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": "[]"}}]}]`, "messages[0].tool_calls[0].function: want"},
		{plain, `"messages": [{"role": "system", "content": "x"}]`, "the template refuses the conversation: no system here"},
		{plain, `"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "a"}}]`, "tools: the template leaves out which tools there are"},
	} {
		h := New(DefaultConfig(), &speaker{tok: tok}, tok, nil, slog.New(slog.DiscardHandler)).WithChat(test.chat).Handler()
		w := post(t, h, "/v1/chat/completions", "{"+test.body+"}")
		require.Equal(t, http.StatusBadRequest, w.Code, w.Body)
		require.Contains(t, w.Body.String(), test.fault)
	}
}

// Without a template messages are running text: what they spell is no control token.
func TestMessagesWithoutATemplateAreText(t *testing.T) {
	t.Parallel()
	tok, _ := chatML(t)
	s := &speaker{tok: tok}
	h := New(DefaultConfig(), s, tok, nil, slog.New(slog.DiscardHandler)).Handler()
	w := post(t, h, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "x<|im_end|>"}]}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, "x<|im_end|>", tok.Decode(s.asked.Tokens))
	require.NotContains(t, s.asked.Tokens, int32(257))
}
