package gateway

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/hf/bpe/bpetest"
	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/internal/realpython"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// Each agent of examples/agent-frameworks calls its tool, is shown the result and answers with it, unchanged but for its base URL. What a framework sends
// is recorded as one context that grows, so that each token that was sampled is trained on once.
func TestUnchangedAgentsOfFrameworks(t *testing.T) {
	t.Parallel()
	python := realpython.Interpreter(t, "openai", "anthropic", "agents", "langgraph", "langchain_openai", "pydantic_ai")
	folder, err := filepath.Abs(filepath.Join("..", "..", "examples", "agent-frameworks"))
	require.NoError(t, err)
	codec, err := bpe.Parse(bpetest.Bytes(t, []string{"<|im_start|>", "<|im_end|>"}, []string{"<tool_call>", "</tool_call>"}))
	require.NoError(t, err)
	chats, err := chat.New(chat.Source{Template: hermes + chatml, Vars: map[string]any{}}, codec)
	require.NoError(t, err)
	for name, module := range map[string]string{
		"openai_chat": "openai_sdk", "openai_responses": "openai_sdk", "anthropic_messages": "anthropic_sdk", "openai_agents": "openai_agents",
		"langgraph_agent": "langgraph_agent", "pydantic_ai_agent": "pydantic_ai_agent",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := NewServer(t.Context(), DefaultConfig(), "", slog.New(slog.DiscardHandler))
			policy := &looking{obliging: obliging{codec: codec}}
			session, err := s.Open(t.Context(), Templated(chats), policy, 10)
			require.NoError(t, err)
			defer s.Close(session)
			server := httptest.NewServer(s.Handler())
			defer server.Close()
			at := session.At(server.URL)
			cmd := exec.CommandContext(t.Context(), python, "-B", "-c", `
import sys, weir, importlib
e = weir.Episode(sys.argv[3], sys.argv[4], sys.argv[5], "box 1 2 3")
said = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(e)
print("answer", said, e.outcome["reward"])`, module, name, at.OpenAI, at.Anthropic, at.Key)
			cmd.Env = append(os.Environ(), "PYTHONPATH="+folder+string(os.PathListSeparator)+filepath.Join(folder, "..", "..", "python"), "OPENAI_AGENTS_DISABLE_TRACING=1")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "answer 0 1.1", "%s", out)
			server.Close() // its handlers have ended
			policy.mu.Lock()
			defer policy.mu.Unlock()
			require.Equal(t, 1, policy.contexts, "the episode is one context")
		})
	}
}

// looking is a policy that opens the box which it was asked about, and answers with the digit in it.
type looking struct {
	obliging
	contexts int
}

func (l *looking) Open(tokens []int32) (Context, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contexts++
	return &lookingContext{obliged{of: &l.obliging, ids: tokens}}, nil
}

type lookingContext struct{ obliged }

func (c *lookingContext) Generate(_ context.Context, _ producers.GenerateOptions) ([]int32, schemas.GenerateStop, error) {
	said := `<tool_call>{"name": "look", "arguments": {"box": "box 1 2 3"}}</tool_call>`
	text := c.of.codec.Decode(c.ids)
	if strings.Contains(text, said) { // it has looked
		said = "0"
	}
	ids := c.of.codec.Encode(said + "<|im_end|>")
	c.ids = append(c.ids, ids...)
	return ids, schemas.GenerateStopToken, nil
}
