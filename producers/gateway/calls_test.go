package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/hf/bpe/bpetest"
	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

const chatml = `{% if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// saying is a policy that says one text in every turn.
type saying struct {
	codec *bpe.Tokenizer
	says  string
	ids   []int32
}

func (s *saying) Open(tokens []int32) (Context, error) { s.ids = tokens; return s, nil }
func (s *saying) Begin(tokens []int32) error           { s.ids = tokens; return nil }
func (s *saying) Observe(tokens []int32) error         { s.ids = append(s.ids, tokens...); return nil }
func (s *saying) Tokens() []int32                      { return s.ids }
func (s *saying) Generate(context.Context, producers.GenerateOptions) ([]int32, schemas.GenerateStop, error) {
	said := s.codec.Encode(s.says + "<|im_end|>")
	s.ids = append(s.ids, said...)
	return said, schemas.GenerateStopToken, nil
}

// answered is what a client of chat completions is told where the policy, of a template that shows such calls, says a text.
func answered(t *testing.T, template, says, request string) (content string, calls [][2]string, finish string) {
	t.Helper()
	codec, err := bpe.Parse(bpetest.Bytes(t, []string{"<|im_start|>", "<|im_end|>"}, []string{"<tool_call>", "</tool_call>", "<think>", "</think>"}))
	require.NoError(t, err)
	chats, err := chat.New(chat.Source{Template: template + chatml, Vars: map[string]any{}}, codec)
	require.NoError(t, err)
	s := NewServer(t.Context(), DefaultConfig(), "", slog.New(slog.DiscardHandler))
	session, err := s.Open(t.Context(), Templated(chats), &saying{codec: codec, says: says}, 8)
	require.NoError(t, err)
	h := &house{s, session, nil, httptest.NewServer(s.Handler())}
	defer h.http.Close()
	defer s.Close(session)
	_, body := h.post(t, "chat/completions", `{"model": "m", "messages": [{"role": "user", "content": "a"}]`+request+`}`)
	var a chatAnswer
	require.NoError(t, json.Unmarshal([]byte(body), &a), body)
	require.Len(t, a.Choices, 1, body)
	m := a.Choices[0].Message
	if m.Content != nil {
		content = *m.Content
	}
	for _, call := range m.ToolCalls {
		calls = append(calls, [2]string{call.Function.Name, call.Function.Arguments})
	}
	return content, calls, *a.Choices[0].FinishReason
}

const (
	hermes = "{# <tool_call> arguments </think> #}"
	coder  = "{# <tool_call> <function= <parameter= #}"
	tools  = `, "tools": [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]`
)

// Finding A8 of the second attack: texts among the arguments were read as numbers and objects, where the format writes both alike.
func TestArgumentsAreReadByTheRequestsSchemas(t *testing.T) {
	t.Parallel()
	_, calls, finish := answered(t, coder,
		"<tool_call>\n<function=write_file>\n<parameter=path>\n7\n</parameter>\n<parameter=content>\n{\"a\": 1}\n</parameter>\n<parameter=mode>\n7\n</parameter>\n</function>\n</tool_call>",
		`, "tools": [{"type": "function", "function": {"name": "write_file", "parameters": {"type": "object",
			"properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "integer"}}}}}]`)
	require.Equal(t, "tool_calls", finish)
	require.Len(t, calls, 1)
	require.JSONEq(t, `{"path": "7", "content": "{\"a\": 1}", "mode": 7}`, calls[0][1])
}

// Finding A12 of the second attack: calls that the agent offered no tools for, and those that cannot be read, were left out of the content.
func TestWhatIsNoCallToTheAgentIsText(t *testing.T) {
	t.Parallel()
	const call = `<tool_call>{"name": "search", "arguments": {"q": "x"}}</tool_call>`
	for name, c := range map[string]struct {
		says, request, content, finish string
		calls                          [][2]string
	}{
		"an agent that reads calls itself": {"<think>hm</think>I look. " + call, ``, "I look. " + call, "stop", nil},
		"tool_choice none":                 {call, `, "tool_choice": "none"` + tools, call, "stop", nil},
		"a call that cannot be read":       {`Now <tool_call>{"name": }</tool_call>`, tools, `Now <tool_call>{"name": }</tool_call>`, "stop", nil},
		"a call":                           {"I look. " + call, tools, "I look.", "tool_calls", [][2]string{{"search", `{"q": "x"}`}}},
		"two calls":                        {call + call, tools, "", "tool_calls", [][2]string{{"search", `{"q": "x"}`}, {"search", `{"q": "x"}`}}},
		"two calls for a client of one":    {call + call, `, "parallel_tool_calls": false` + tools, "", "tool_calls", [][2]string{{"search", `{"q": "x"}`}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content, calls, finish := answered(t, hermes, c.says, c.request)
			require.Equal(t, c.content, content)
			require.Equal(t, c.finish, finish)
			require.Equal(t, c.calls, calls)
		})
	}
}
