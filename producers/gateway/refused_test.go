package gateway

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/hf/bpe/bpetest"
	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// narrow is a policy whose context takes few tokens.
type narrow struct {
	saying
	most int
}

func (n *narrow) Open(tokens []int32) (Context, error) { n.ids = tokens; return n, nil }

func (n *narrow) Begin(tokens []int32) error {
	if len(tokens) > n.most {
		return &producers.StoppedError{Reason: schemas.StopTokens}
	}
	return n.saying.Begin(tokens)
}

// What a context had no room for is in none: an agent that shortens it and asks again goes on from what it was told, where the template
// writes the whole conversation anew as well.
func TestWhatHadNoRoomIsNotInTheConversation(t *testing.T) {
	t.Parallel()
	codec, err := bpe.Parse(bpetest.Bytes(t, []string{"<|im_start|>", "<|im_end|>"}, []string{"<think>", "</think>"}))
	require.NoError(t, err)
	forgetful := strings.Replace(chatml, "{{ m.content }}", "{{ m.content.split('</think>')[-1] }}", 1)
	chats, err := chat.New(chat.Source{Template: forgetful, Vars: map[string]any{}}, codec)
	require.NoError(t, err)
	s := NewServer(t.Context(), DefaultConfig(), "", slog.New(slog.DiscardHandler))
	policy := &narrow{saying{codec: codec, says: "<think>hm</think>yes"}, 200}
	session, err := s.Open(t.Context(), Templated(chats), policy, 8)
	require.NoError(t, err)
	h := &house{s, session, nil, httptest.NewServer(s.Handler())}
	defer h.http.Close()
	defer s.Close(session)

	status, body := h.post(t, "chat/completions", chatOf("user", "a"))
	require.Equal(t, http.StatusOK, status, body)
	status, body = h.post(t, "chat/completions", chatOf("user", "a", "assistant", "yes", "user", strings.Repeat("long ", 50)))
	require.Equal(t, http.StatusBadRequest, status, body)
	status, body = h.post(t, "chat/completions", chatOf("user", "a", "assistant", "yes", "user", "short"))
	require.Equal(t, http.StatusOK, status, body)
	status, body = h.post(t, "weir/finish", `{"failed": true}`)
	require.Equal(t, http.StatusConflict, status, "the agent went on from the limit: %s", body)
	require.Equal(t, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>user\nshort<|im_end|>\n<|im_start|>assistant\n<think>hm</think>yes<|im_end|>",
		codec.Decode(policy.ids))
}
