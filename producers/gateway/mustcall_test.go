package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/hf/bpe/bpetest"
	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// calling is a policy that says one text in every turn, and an episode of one context that has apart what was sampled.
type calling struct {
	codec    *bpe.Tokenizer
	says     string
	contexts int
	ids      []int32
	sampled  [][]int32
}

func (c *calling) Open(tokens []int32) (Context, error) {
	c.contexts++
	return c, c.Begin(tokens)
}
func (c *calling) Begin(tokens []int32) error   { c.ids = append([]int32{}, tokens...); return nil }
func (c *calling) Observe(tokens []int32) error { c.ids = append(c.ids, tokens...); return nil }
func (c *calling) Tokens() []int32              { return c.ids }

func (c *calling) Generate(context.Context, producers.GenerateOptions) ([]int32, schemas.GenerateStop, error) {
	said := c.codec.Encode(c.says + "<|im_end|>")
	c.ids, c.sampled = append(c.ids, said...), append(c.sampled, said)
	return said, schemas.GenerateStopToken, nil
}

// openCalling opens a session of a policy whose template shows calls in a format.
func openCalling(t *testing.T, template, says string) (*house, *calling) {
	t.Helper()
	codec, err := bpe.Parse(bpetest.Bytes(t, []string{"<|im_start|>", "<|im_end|>"}, []string{"<tool_call>", "</tool_call>"}))
	require.NoError(t, err)
	chats, err := chat.New(chat.Source{Template: template + chatml, Vars: map[string]any{}}, codec)
	require.NoError(t, err)
	s, policy := NewServer(t.Context(), DefaultConfig(), "", slog.New(slog.DiscardHandler)), &calling{codec: codec, says: says}
	session, err := s.Open(t.Context(), Templated(chats), policy, 8)
	require.NoError(t, err)
	h := &house{s, session, nil, httptest.NewServer(s.Handler())}
	t.Cleanup(func() {
		s.Close(session)
		h.http.Close()
	})
	return h, policy
}

const (
	thoughtless = "{# <tool_call> arguments #}"
	asked       = `{"model": "m", "messages": [{"role": "user", "content": "a"}]`
	ownTools    = `, "max_tokens": 99, "tools": [{"name": "search", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"}}`
	flatTools   = `, "tools": [{"type": "function", "name": "search", "parameters": {"type": "object"}}], "tool_choice": "required"}`
	called      = `"role": "assistant", "content": null, "tool_calls": [{"id": "", "type": "function", "function": {"name": "search", "arguments": "{\"q\": \"x\"}"}}]`
)

// A request that wants a call has its reply begin with the token that begins a call. The token is put into the context, and is not sampled: what the policy
// samples goes on behind it, and both together are the turn, for the client and for the conversation.
func TestARequestThatWantsACallBeginsIt(t *testing.T) {
	t.Parallel()
	for name, request := range map[string][2]string{
		"chat completions": {"chat/completions", asked + tools + `, "tool_choice": "required"}`},
		"responses":        {"responses", `{"model": "m", "input": "a"` + flatTools},
		"messages":         {"messages", asked + ownTools},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, policy := openCalling(t, thoughtless, `{"name": "search", "arguments": {"q": "x"}}</tool_call>`)
			status, body := h.post(t, request[0], request[1])
			require.Equal(t, http.StatusOK, status, body)
			require.Contains(t, body, `"search"`)
			require.NotContains(t, body, "tool_call>", "it is a call, not a text")
			first := len(policy.ids) - len(policy.sampled[0])
			require.Equal(t, "<tool_call>", policy.codec.Decode(policy.ids[first-1:first]))
			require.Equal(t, policy.says+"<|im_end|>", policy.codec.Decode(policy.sampled[0]))
		})
	}
	h, policy := openCalling(t, thoughtless, `{"name": "search", "arguments": {"q": "x"}}</tool_call>`)
	for _, more := range []string{`]`, `, {` + called + `}, {"role": "tool", "content": "seen"}]`} {
		status, body := h.post(t, "chat/completions", `{"model": "m", "messages": [{"role": "user", "content": "a"}`+more+tools+`, "tool_choice": "required"}`)
		require.Equal(t, http.StatusOK, status, body)
		require.Contains(t, body, `"tool_calls"`)
	}
	require.Equal(t, 1, policy.contexts)
	whole := policy.codec.Decode(policy.ids)
	require.Contains(t, whole, "assistant\n<tool_call>"+policy.says+"<|im_end|>\n<|im_start|>tool\nseen<|im_end|>\n<|im_start|>assistant\n<tool_call>"+policy.says+"<|im_end|>")
}

// What the policy says behind the token may be no call: the client is told of it as text.
func TestARequiredCallThatCannotBeReadIsText(t *testing.T) {
	t.Parallel()
	h, _ := openCalling(t, thoughtless, `no</tool_call>`)
	_, body := h.post(t, "chat/completions", asked+tools+`, "tool_choice": "required"}`)
	require.Contains(t, body, `"content":"<tool_call>no</tool_call>"`)
	require.Contains(t, body, `"finish_reason":"stop"`)
}

func TestACallThatNothingHoldsThePolicyToIsRefused(t *testing.T) {
	t.Parallel()
	named := tools + `, "tool_choice": {"type": "function", "function": {"name": "search"}}}`
	for name, c := range map[string][4]string{
		"a model that thinks":   {hermes, "chat/completions", asked + tools + `, "tool_choice": "required"}`, "the model thinks before it calls"},
		"responses":             {hermes, "responses", `{"model": "m", "input": "a"` + flatTools, "the model thinks before it calls"},
		"messages":              {hermes, "messages", asked + ownTools, "the model thinks before it calls"},
		"a tool of its name":    {thoughtless, "chat/completions", asked + named, "nothing holds the policy to a call"},
		"no tool":               {thoughtless, "chat/completions", asked + `, "tool_choice": "required"}`, "nothing holds the policy to a call"},
		"JSON without a marker": {`{# "parameters": ipython #}`, "chat/completions", asked + tools + `, "tool_choice": "required"}`, "begin with no token of their own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, policy := openCalling(t, c[0], "a")
			status, body := h.post(t, c[1], c[2])
			require.Equal(t, http.StatusBadRequest, status, body)
			require.Contains(t, body, c[3])
			require.Zero(t, policy.contexts)
		})
	}
}

// A client that wanted a call, left before the reply was there, and asks for the same without a call is not given a context that begins a call.
func TestARequestWithoutACallGoesOnInNoContextThatBeginsACall(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	begun := make(chan struct{})
	book := &recorded{says: func(ctx context.Context, _ string) (string, error) {
		close(begun)
		<-ctx.Done()
		return "", context.Cause(ctx)
	}}
	s := newSession(ctx, spelling{}, book, 8)
	defer s.Close()
	r := request{messages: []chat.Message{{Role: chat.User, Content: "a"}}, tools: []chat.Tool{{Name: "look"}}, mustCall: true, tries: firstTry}
	leaving, leave := context.WithCancel(ctx)
	left := make(chan error, 1)
	first := r
	go func() {
		_, _, err := s.askPolicy(leaving, &first)
		left <- err
	}()
	<-begun
	book.says = counting()
	leave()
	require.Error(t, <-left)
	plain := r
	plain.mustCall = false
	got, _, err := s.askPolicy(ctx, &plain)
	require.NoError(t, err)
	require.Equal(t, "1", got.content)
	got, _, err = s.askPolicy(ctx, &request{messages: r.messages, tools: r.tools, mustCall: true, tries: 1})
	require.NoError(t, err)
	require.Len(t, got.calls, 1, "the policy's 2 is the call's name: %q", got.content)
	require.Len(t, book.all, 2)
}
