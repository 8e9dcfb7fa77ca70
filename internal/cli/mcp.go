package cli

import (
	"context"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/producers/toolserver/mcpserver"
)

func newMcpCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "mcp [tool...]", Short: "Serve tools as a server of the Model Context Protocol",
		Long: `Mcp offers tools to any agent that speaks the Model Context Protocol: over standard input and output, or with --listen
over streamable HTTP at /mcp. The names are as for weir tool; without any, the tools of the task are offered. Each
session of the protocol has a session of the tools, so that a cell finds the variables of the one before.`,
		Example: "  weir mcp starlark calculator\n  weir mcp sql --tools.sql.path shop.db --listen 127.0.0.1:8100",
	}
	listen := cmd.Flags().String("listen", "", "serve streamable HTTP there; whoever reaches it can call the tools")
	a.addOffers(cmd, func(ctx context.Context, o offered) error {
		version, _ := buildVersion(debug.ReadBuildInfo())
		server := mcpserver.New(version, o.sessions, o.tools)
		if *listen != "" {
			return a.serveHTTP(ctx, *listen, mcpserver.Handler(server, o.idle), "MCP at /mcp", o)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer tendSessions(ctx, o.sessions)()
		return mcpserver.ServeIO(ctx, server, io.NopCloser(cmd.InOrStdin()), unclosed{a.out})
	})
	return cmd
}

// unclosed is a writer that its user cannot close.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
