package mcpserver_test

import (
	"context"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/toolserver"
	"github.com/weir-rl/weir/producers/toolserver/mcpserver"
)

// keeper is a tool that counts its open sessions.
type keeper struct{ open atomic.Int64 }

func (*keeper) Spec() producers.ToolSpec { return producers.ToolSpec{Name: "keep"} }

func (k *keeper) Open(context.Context, producers.Session) error {
	k.open.Add(1)
	return nil
}

func (k *keeper) Close(context.Context, string) error {
	k.open.Add(-1)
	return nil
}

func (*keeper) Call(context.Context, producers.Call) (producers.Observation, error) {
	return producers.Observation{Text: "kept"}, nil
}

// Finding 5 of the eighth reader: the tools' session of a caller that had left held its place until it had been idle, so that callers one
// after the other were refused once as many had come as there may be at once.
func TestACallerThatHasLeftHoldsNoSession(t *testing.T) {
	t.Parallel()
	tool := &keeper{}
	served := []producers.Tool{tool}
	sessions := toolserver.New(toolserver.Config{Sessions: 1, Idle: time.Hour}, served)
	server := httptest.NewServer(mcpserver.Handler(mcpserver.New("1", sessions, served), time.Hour))
	defer server.Close()
	for range 3 {
		client := sdk.NewClient(&sdk.Implementation{Name: "x", Version: "1"}, nil)
		caller, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: server.URL, DisableStandaloneSSE: true}, nil)
		require.NoError(t, err)
		for range 2 {
			got, err := caller.CallTool(t.Context(), &sdk.CallToolParams{Name: "keep", Arguments: map[string]any{"input": "x"}})
			require.NoError(t, err)
			require.False(t, got.IsError)
			require.EqualValues(t, 1, tool.open.Load())
		}
		require.NoError(t, caller.Close())
		require.Eventually(t, func() bool { return tool.open.Load() == 0 }, 10*time.Second, time.Millisecond)
	}
}
