package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/hf/bpe/bpetest"
	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/internal/realpython"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// The clients that people's programs have, unchanged, against a session of a policy with a chat template. What they do is in
// testdata/clients.py; their versions are the pinned ones.
func TestUnchangedClientsOfTheSDKs(t *testing.T) {
	t.Parallel()
	python := realpython.Interpreter(t, "openai", "anthropic")
	codec, err := bpe.Parse(bpetest.Bytes(t, []string{"<|im_start|>", "<|im_end|>"}, []string{"<tool_call>", "</tool_call>"}))
	require.NoError(t, err)
	chats, err := chat.New(chat.Source{Template: hermes + chatml, Vars: map[string]any{}}, codec)
	require.NoError(t, err)
	cfg := DefaultConfig()
	cfg.Ignore = []string{"response_format"}
	s := NewServer(t.Context(), cfg, "", slog.New(slog.DiscardHandler))
	s.ping = 5 * time.Millisecond
	policy := &obliging{codec: codec, let: make(chan struct{}), begun: map[string]int{}}
	session, err := s.Open(t.Context(), Templated(chats), policy, 1000)
	require.NoError(t, err)
	defer s.Close(session)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /let", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case policy.let <- struct{}{}:
		case <-r.Context().Done():
		}
	})
	mux.Handle("/", s.Handler())
	server := httptest.NewServer(mux)
	defer server.Close()
	at := session.At(server.URL)

	cmd := exec.CommandContext(t.Context(), python, "testdata/clients.py")
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+at.OpenAI, "OPENAI_API_KEY="+at.Key, "ANTHROPIC_BASE_URL="+at.Anthropic, "ANTHROPIC_API_KEY="+at.Key)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "FAILED")
	pinned, err := os.ReadFile("../../internal/realpython/requirements.txt")
	require.NoError(t, err)
	_, versions, _ := strings.Cut(string(out), "versions ")
	for version := range strings.FieldsSeq(versions) {
		require.Contains(t, string(pinned), "=="+version, "the interpreter has other versions than those that are pinned")
	}
}

// obliging is an episode whose policy does as it was told last.
type obliging struct {
	codec *bpe.Tokenizer
	let   chan struct{}

	mu    sync.Mutex
	n     int
	begun map[string]int // how often an impatient client was kept waiting
}

func (o *obliging) Open(tokens []int32) (Context, error) { return &obliged{of: o, ids: tokens}, nil }

type obliged struct {
	of  *obliging
	ids []int32
}

func (c *obliged) Begin(tokens []int32) error   { c.ids = tokens; return nil }
func (c *obliged) Observe(tokens []int32) error { c.ids = append(c.ids, tokens...); return nil }
func (c *obliged) Tokens() []int32              { return c.ids }

func (c *obliged) Generate(ctx context.Context, g producers.GenerateOptions) ([]int32, schemas.GenerateStop, error) {
	said, err := c.of.says(ctx, c.last())
	if err != nil {
		return nil, "", err
	}
	ids, why := c.of.codec.Encode(said+"<|im_end|>"), schemas.GenerateStopToken
	if g.MaxTokens > 0 && len(ids) > g.MaxTokens {
		ids, why = ids[:g.MaxTokens], schemas.GenerateLength
	}
	c.ids = append(c.ids, ids...)
	return ids, why, nil
}

// last is the last message of somebody else, with "tool " before that of a tool.
func (c *obliged) last() string {
	messages := strings.Split(c.of.codec.Decode(c.ids), "<|im_start|>")
	last := strings.TrimSuffix(strings.TrimSpace(messages[len(messages)-2]), "<|im_end|>")
	role, said, _ := strings.Cut(last, "\n")
	if role == chat.ToolRole {
		return "tool " + said
	}
	return said
}

func (o *obliging) says(ctx context.Context, told string) (string, error) {
	const call = `<tool_call>{"name": "look", "arguments": {"at": "%d"}}</tool_call>`
	verb, rest, _ := strings.Cut(told, " ")
	switch verb {
	case "say":
		return rest, nil
	case "tool":
		return "seen: " + rest, nil
	case "look":
		return fmt.Sprintf(call, 7), nil
	case "twice":
		return fmt.Sprintf(call+call, 7, 8), nil
	case "late":
		select {
		case <-o.let:
			return "now", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	case "count":
		o.mu.Lock()
		defer o.mu.Unlock()
		o.n++
		return fmt.Sprint(o.n), nil
	case "impatient":
		return o.try(ctx, rest)
	}
	return "", fmt.Errorf("the policy was told %q", told)
}

// try keeps waiting whoever asks first; where all ask at once, three.
func (o *obliging) try(ctx context.Context, who string) (string, error) {
	o.mu.Lock()
	o.begun[who]++
	n := o.begun[who]
	o.mu.Unlock()
	if n == 1 || who == "all" && n <= 3 {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return "patience", nil
}
