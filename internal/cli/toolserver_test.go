package cli

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools/calculator"
	"github.com/weir-rl/weir/producers/toolserver"
	"github.com/weir-rl/weir/producers/toolserver/mcpserver"
)

// Finding A16 of the second adversarial review: neither toolserver nor mcp runs a tool for a page of another site.
func TestToolsAreNotServedToOtherSites(t *testing.T) {
	t.Parallel()
	served := []producers.Tool{calculator.Tool{}}
	for name, start := range map[string]func(context.Context, *app, offered) error{
		"toolserver": func(ctx context.Context, a *app, o offered) error { return a.serveTools(ctx, "127.0.0.1:0", o) },
		"mcp": func(ctx context.Context, a *app, o offered) error {
			return a.serveHTTP(ctx, "127.0.0.1:0", mcpserver.Handler(mcpserver.New("1", o.sessions, o.tools), o.idle), "MCP at /mcp", o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, in := io.Pipe()
			a := &app{console: console{out: in}}
			o := offered{tools: served, sessions: toolserver.New(toolserver.Config{Sessions: 4, Idle: time.Hour}, served), idle: time.Hour}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- start(ctx, a, o) }()
			line, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			base := strings.TrimSpace(line[strings.Index(line, "http://"):])
			path, body := "/get_observation", `{"trajectory_ids": ["x"], "actions": ["6*7"]}`
			if name == "mcp" {
				path, body = "/mcp", `{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}`
			}
			for _, c := range []struct {
				host, kind, header, value string
				want                      int
			}{
				{kind: "application/json", want: 200},
				{kind: "text/plain", want: 415},
				{host: "evil.example", kind: "application/json", want: 421},
				{kind: "application/json", header: "Origin", value: "https://evil.example", want: 403},
				{kind: "application/json", header: "Origin", value: "null", want: 403},
				{kind: "application/json", header: "Sec-Fetch-Site", value: "cross-site", want: 403},
			} {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(body))
				require.NoError(t, err)
				req.Header.Set("Accept", "application/json, text/event-stream")
				if c.kind != "" {
					req.Header.Set("Content-Type", c.kind)
				}
				if c.header != "" {
					req.Header.Set(c.header, c.value)
				}
				if c.host != "" {
					req.Host = c.host
				}
				res, err := http.DefaultClient.Do(req)
				require.NoError(t, err)
				answer, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.Equal(t, c.want, res.StatusCode, "%+v: %s", c, answer)
			}
			cancel()
			require.NoError(t, <-ended)
		})
	}
}
