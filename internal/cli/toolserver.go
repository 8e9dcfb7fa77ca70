package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/httpguard"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/producers/toolserver"
)

func newToolserverCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "toolserver [tool...]", Short: "Serve tools to other trainers and agents",
		Long: `Toolserver serves tools over HTTP as VerlTool's server does, POST /get_observation, with a session for each trajectory.
Where a search is among them it also answers POST /retrieve as Search-R1's retrieval server does. The names are as for
weir tool; without any, the tools of the task are served. GET /health answers while it runs.`,
		Example: "  weir toolserver search --listen 127.0.0.1:8000\n  weir toolserver starlark calculator --config run.yaml",
	}
	listen := cmd.Flags().String("listen", "127.0.0.1:8000", "where to listen; whoever reaches it can call the tools")
	a.addOffers(cmd, func(ctx context.Context, o offered) error {
		return a.serveTools(ctx, *listen, o)
	})
	return cmd
}

// offered are tools that a command serves to others, and the sessions that it gives out of them.
type offered struct {
	tools    []producers.Tool
	sessions *toolserver.Sessions
	// idle is how long a session may be without a call.
	idle time.Duration
	// hosts are names of public DNS under which they may be asked for.
	hosts []string
}

// addOffers has a command open the tools that its arguments name, or the tools of its task, and serve them.
func (a *app) addOffers(cmd *cobra.Command, serve func(context.Context, offered) error) {
	taskName := cmd.Flags().String("task", "", "whose passages and world the tools have, where there are several tasks")
	cfg := toolserver.Config{}
	var hosts []string
	cmd.Flags().IntVar(&cfg.Sessions, "sessions", 1024, "how many callers may have a session at once")
	cmd.Flags().DurationVar(&cfg.Idle, "idle", 10*time.Minute, "how long a session may be without a call")
	cmd.Flags().StringSliceVar(&hosts, "hosts", nil, "names of public DNS under which the tools may be asked for; addresses and a network's own names always may")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cfg.Sessions < 1 || cfg.Idle <= 0 {
			return fault.Usage(errors.New("--sessions and --idle: must be positive"))
		}
		s, err := a.openProcess(cmd)
		if err != nil {
			return err
		}
		bench := s.NewToolBench()
		defer bench.CloseSandboxes()
		opened, err := bench.OpenTools(cmd.Context(), args, *taskName)
		if err != nil {
			return err
		}
		for _, t := range opened {
			defer bench.CloseTool(t)
		}
		return serve(cmd.Context(), offered{opened, toolserver.New(cfg, opened), cfg.Idle, hosts})
	}
}

// serveTools serves VerlTool's and Search-R1's protocols until ctx ends.
func (w *console) serveTools(ctx context.Context, listen string, o offered) error {
	mux := http.NewServeMux()
	mux.Handle("/get_observation", o.sessions.VerlTool())
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, `{"status": "healthy"}`) })
	paths := []string{"/get_observation"}
	for _, t := range o.tools {
		if find, ok := tools.Bare(t).(toolserver.Finder); ok && !slices.Contains(paths, "/retrieve") {
			mux.Handle("/retrieve", toolserver.Retrieve(find, 3))
			paths = append(paths, "/retrieve")
		}
	}
	return w.serveHTTP(ctx, listen, mux, strings.Join(paths, " and "), o)
}

// tendSessions closes idle sessions until the returned function is called, which closes all.
func tendSessions(ctx context.Context, sessions *toolserver.Sessions) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		sessions.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// mostBody bounds a request, in bytes.
const mostBody = 4 << 20

// serveHTTP serves until ctx ends, by httpguard's rules: whoever reaches the address may call the tools, and a browser on this machine does not
// ask for its user alone.
func (w *console) serveHTTP(ctx context.Context, listen string, handler http.Handler, what string, o offered) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("listen for tool calls: %w", err)
	}
	rules := httpguard.Rules{
		Hosts: o.hosts, Remedy: "ask for an address or localhost, beyond loopback also for a name of the network; or name the host in --hosts",
	}
	server := &http.Server{Handler: rules.Wrap(http.MaxBytesHandler(handler, mostBody)), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	defer tendSessions(ctx, o.sessions)()
	fmt.Fprintf(w.out, "serving %s on http://%s\n", what, listener.Addr())
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve tools: %w", err)
	case <-ctx.Done():
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), serveDrain)
	defer cancel()
	if err := server.Shutdown(draining); err != nil {
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve tools: %w", err)
	}
	return nil
}
