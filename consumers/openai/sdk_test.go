package openai

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/internal/realpython"
	"github.com/weir-rl/weir/schemas"
)

// OpenAI's own client, unchanged, against what weir serve serves. What it does is in testdata/clients.py; its version is the
// pinned one.
func TestUnchangedClientsOfTheSDK(t *testing.T) {
	t.Parallel()
	python := realpython.Interpreter(t, "openai")
	tok, c := chatML(t)
	cfg := DefaultConfig()
	cfg.Shaping, cfg.APIKey = ShapingIgnore, "sesame"
	g := &obliging{tok: tok, let: make(chan struct{})}
	o := New(cfg, g, tok, nil, slog.New(slog.DiscardHandler)).WithChat(c).WithEnds(c.Stop())
	o.ping = 5 * time.Millisecond
	mux := http.NewServeMux()
	mux.HandleFunc("GET /let", func(http.ResponseWriter, *http.Request) { g.let <- struct{}{} })
	mux.Handle("/", o.Handler())
	server := httptest.NewServer(mux)
	defer server.Close()
	cmd := exec.CommandContext(t.Context(), python, "testdata/clients.py")
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+server.URL+"/v1", "OPENAI_API_KEY=sesame")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "FAILED")
	pinned, err := os.ReadFile("../../internal/realpython/requirements.txt")
	require.NoError(t, err)
	_, version, _ := strings.Cut(strings.TrimSpace(string(out)), "versions ")
	require.Contains(t, string(pinned), "openai=="+version, "the interpreter has another version than the one that is pinned")
}

// obliging is a policy that does as it was told last, a token at a time.
type obliging struct {
	tok *bpe.Tokenizer
	let chan struct{}
}

func (*obliging) Version() int64 { return 1 }

func (o *obliging) Stream(ctx context.Context, r *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	return o.Generate(ctx, r, emit)
}

func (o *obliging) Generate(ctx context.Context, r *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	said, err := o.says(ctx, o.tok.Decode(r.Tokens))
	if err != nil {
		return err
	}
	ids := o.tok.Encode(said + "<|im_end|>")
	for i, id := range ids {
		c := &schemas.GenerateChunk{Tokens: []int32{id}, Logprobs: []float32{-1}, Versions: []int32{1}}
		switch {
		case i == len(ids)-1:
			c.Done, c.Stop = true, schemas.GenerateStopToken
		case i+1 == r.MaxTokens:
			c.Done, c.Stop = true, schemas.GenerateLength
		}
		if err := emit(c); err != nil || c.Done {
			return err
		}
	}
	return nil
}

func (o *obliging) says(ctx context.Context, context string) (string, error) {
	const seven, eight = `<tool_call>{"name": "look", "arguments": {"at": "7"}}</tool_call>`, `<tool_call>{"name": "look", "arguments": {"at": "8"}}</tool_call>`
	at := max(strings.LastIndex(context, "say "), strings.LastIndex(context, "look<|im_end|>"), strings.LastIndex(context, "twice"), strings.LastIndex(context, "late<|im_end|>"))
	verb, rest, _ := strings.Cut(context[at:], " ")
	rest, _, _ = strings.Cut(rest, "<|im_end|>")
	switch {
	case verb == "say":
		return strings.TrimSuffix(rest, "\n</tool_response>"), nil
	case strings.HasPrefix(verb, "look"):
		return seven, nil
	case strings.HasPrefix(verb, "twice"):
		return seven + eight, nil
	}
	select {
	case <-o.let:
		return "now", nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
