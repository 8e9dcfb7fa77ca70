// Package mcpserver offers tools to agents that speak the Model Context Protocol, over standard input and output or streamable HTTP, by the
// official SDK. Each session of the protocol has a session of the tools.
package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/toolserver"
)

// inputKey is the argument of tools that take a free text.
const inputKey = "input"

const freeText = `{"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"], "additionalProperties": false}`

// New is a server of the tools, which are called in their sessions.
func New(version string, sessions *toolserver.Sessions, served []producers.Tool) *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "weir", Version: version}, &sdk.ServerOptions{Capabilities: &sdk.ServerCapabilities{}})
	callers := &callers{sessions: sessions, awaited: map[*sdk.ServerSession]bool{}}
	for _, tool := range served {
		spec := tool.Spec()
		schema := spec.Parameters
		if schema == nil {
			schema = json.RawMessage(freeText)
		}
		server.AddTool(&sdk.Tool{Name: spec.Name, Description: spec.Description, InputSchema: schema}, callers.toolHandler(spec))
	}
	return server
}

// callers are the sessions of the protocol that have called a tool.
type callers struct {
	sessions *toolserver.Sessions

	mu      sync.Mutex
	awaited map[*sdk.ServerSession]bool
}

// nameSession returns the name of a caller's session of the tools. It ends with the session of the protocol: a caller that has left holds
// none.
func (c *callers) nameSession(caller *sdk.ServerSession) string {
	name := "mcp " + caller.ID()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.awaited[caller] {
		return name
	}
	c.awaited[caller] = true
	go func() {
		_ = caller.Wait()                                // however it ended; its calls have ended before
		_ = c.sessions.Close(context.Background(), name) // a session that does not close well is the tool's
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.awaited, caller)
	}()
	return name
}

// toolHandler calls a tool. An error that an agent of Weir's would be shown is a result that is an error; a failure of the
// machinery is an error of the protocol.
func (c *callers) toolHandler(spec producers.ToolSpec) sdk.ToolHandler {
	return func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		arguments := string(r.Params.Arguments)
		if spec.Parameters == nil {
			var ok bool
			if arguments, ok = inputOf(r.Params.Arguments); !ok {
				return failureResult(fmt.Sprintf(`want {"%s": "..."} with one text`, inputKey)), nil
			}
		}
		o, err := c.sessions.Call(ctx, c.nameSession(r.Session), spec.Name, arguments, nil)
		switch {
		case errors.Is(err, producers.ErrUnavailable):
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
		case err != nil:
			return failureResult(err.Error()), nil
		}
		text := o.Text
		if o.Answer != nil {
			text = *o.Answer
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil
	}
}

// inputOf is the free text of arguments that hold it and nothing else.
func inputOf(arguments json.RawMessage) (text string, ok bool) {
	var object map[string]*string
	if json.Unmarshal(arguments, &object) != nil || len(object) != 1 || object[inputKey] == nil {
		return "", false
	}
	return *object[inputKey], true
}

func failureResult(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// ServeIO serves a session until in ends or ctx does.
func ServeIO(ctx context.Context, server *sdk.Server, in io.ReadCloser, out io.WriteCloser) error {
	err := server.Run(ctx, &sdk.IOTransport{Reader: in, Writer: out})
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		return fmt.Errorf("serve MCP: %w", err)
	}
	return nil
}

// Handler serves streamable HTTP; sessions without a request for so long are closed.
func Handler(server *sdk.Server, idle time.Duration) http.Handler {
	protected := http.NewCrossOriginProtection()
	return protected.Handler(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		SessionTimeout: idle, JSONResponse: true,
	}))
}
