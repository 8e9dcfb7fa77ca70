package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
)

// The list of ways out of training: a call that ends its server is told to the agent where the server opens another session, and is the
// machinery's failure where it opens none.
func TestAServerThatIsGoneIsTheMachinerysFailure(t *testing.T) {
	t.Parallel()
	name := program(t)
	served := byCommand(t, false, func(c *Config) { c.Command[0] = name })
	open(t, served, "e")
	_, err := call(t.Context(), served["die"], "e", "{}")
	require.EqualError(t, err, anew)
	require.NotErrorIs(t, err, producers.ErrUnavailable)
	require.NoError(t, os.Remove(name))
	_, err = call(t.Context(), served["die"], "e", "{}")
	require.ErrorIs(t, err, producers.ErrUnavailable, "no program is there to be started anew")
	_, err = call(t.Context(), served["echo"], "e", "{}")
	require.ErrorIs(t, err, producers.ErrUnavailable)
}

// A service by URL that breaks a call off and answers the next is told of; one that is away is not the agent's doing. What it answers to a
// call, an error of its own too, is told.
func TestAServiceThatBreaksACallOff(t *testing.T) {
	t.Parallel()
	server := sdk.NewServer(&sdk.Implementation{Name: "service", Version: "1"}, nil)
	var away, breaking atomic.Bool
	for name, code := range map[string]int64{"fail": jsonrpc.CodeInternalError, "odd": -32000} {
		server.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type": "object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: code, Message: "no such table"}
		})
	}
	inner := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || away.Load() || breaking.Load() && bytes.Contains(body, []byte("tools/call")) {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { // what the client could not end
		for session := range server.Sessions() {
			_ = session.Close()
		}
	})
	t.Cleanup(service.Close)
	cfg := DefaultConfig()
	cfg.URL, cfg.Allow, cfg.StartTimeout = service.URL, []string{"*"}, patient
	client, err := New(t.Context(), cfg, nil)
	require.NoError(t, err)
	served := map[string]producers.Tool{}
	for _, tool := range client.Tools() {
		served[tool.Spec().Name] = tool
	}
	open(t, served, "e")
	_, err = call(t.Context(), served["fail"], "e", "{}")
	require.EqualError(t, err, "no such table")
	_, err = call(t.Context(), served["odd"], "e", "{}")
	require.EqualError(t, err, anew, "what the protocol has no meaning for")
	breaking.Store(true)
	_, err = call(t.Context(), served["fail"], "e", "{}")
	require.EqualError(t, err, anew, "calls are broken off, and sessions open")
	away.Store(true)
	_, err = call(t.Context(), served["fail"], "e", "{}")
	require.ErrorIs(t, err, producers.ErrUnavailable)
}
