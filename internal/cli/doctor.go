package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/doctor"
	"github.com/weir-rl/weir/streams"
)

func (a *app) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look whether this machine has what the configuration needs", Args: cobra.NoArgs,
		Long: `Doctor looks at Python, PyTorch, CUDA, its devices and NCCL, memory, vLLM, SGLang, the disk, shared memory, the sandbox,
the broker and the clock, and prints a line for each: what it found and, where something is wrong, what to do. It asks
for what the configuration names: what that does not need and is not there is "unused".

It ends with 0 where the configuration can be run, warnings or not, with 1 where a line says "fail", with 2 on wrong
arguments and with 3 on a configuration that is at fault.`,
		Example: "  weir doctor\n  weir doctor --config run.yaml -o json",
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := a.session(cmd)
		if err != nil {
			return err
		}
		needs, err := needsOf(s.cfg)
		if err != nil {
			return err
		}
		lines := doctor.Examine(cmd.Context(), doctor.Local{Environ: s.getenv, Ask: s.askBroker}, needs)
		failed := doctor.Failed(lines)
		if format.json() {
			err = a.printJSON(struct {
				OK     bool          `json:"ok"`
				Checks []doctor.Line `json:"checks"`
			}{!failed, lines})
		} else {
			err = printLines(s, lines)
		}
		if err == nil && failed {
			err = &exitError{exitRuntime, errSaid}
		}
		return err
	}
	return cmd
}

// printLines prints the lines for people, a remedy under its line.
func printLines(s *session, lines []doctor.Line) error {
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&out, "%-6s  %-14s  %s\n", l.Verdict, l.Check, l.Detail)
		if l.Remedy != "" {
			fmt.Fprintf(&out, "%-6s  %-14s  -> %s\n", "", "", l.Remedy)
		}
	}
	_, err := fmt.Fprint(s.out, out.String())
	return err
}

// getenv is a variable of the environment that the command was given.
func (a *app) getenv(key string) string {
	for _, pair := range a.environ {
		if value, ok := strings.CutPrefix(pair, key+"="); ok {
			return value
		}
	}
	return ""
}

// needsOf is what a configuration asks of a machine that runs all of its roles.
func needsOf(cfg *config.Config) (doctor.Needs, error) {
	n := doctor.Needs{Dir: cfg.Run.Dir, Broker: cfg.Broker.URL}
	values := config.Values(cfg)
	text := func(key string) string {
		v, _ := values[key].(string) // "" where this build has no such key
		return v
	}
	sampler := text("inference.engine")
	n.Torch = cfg.Model.Engine == "torch" || sampler == "torch"
	n.VLLM, n.SGLang = sampler == "vllm" && noServers(values), sampler == "sglang" && noServers(values)
	n.Python = cfg.Torch.Python
	n.CUDA = n.VLLM || n.SGLang || n.Torch && cfg.Torch.Device == "cuda"
	if cfg.Model.Folder == "" {
		return n, nil
	}
	folder, err := hf.Open(cfg.Model.Folder)
	if err != nil {
		return n, err
	}
	weights := weightBytes(folder.Config)
	if cfg.Model.Engine == config.EngineNative {
		// The trainer's weights, their layout, gradient and moments, and a sampler's two versions.
		n.Memory = 7 * weights
	}
	// Kept checkpoints have weights and moments; versions are on their way out, stored, and on their way in.
	n.Disk = int64(cfg.Trainer.Checkpoint.Keep+1)*3*weights + int64(cfg.Streams.WeightsKeep+3)*weights
	return n, errors.Join(folder.Close())
}

// noServers says that inference servers are started on this machine.
func noServers(values map[string]any) bool {
	switch servers := values["inference.servers"].(type) {
	case []string:
		return len(servers) == 0
	case []any:
		return len(servers) == 0
	}
	return true
}

// askBroker asks the configured broker who it is.
func (s *session) askBroker(ctx context.Context, _ string) (doctor.Broker, error) {
	conn, err := s.connectSoon(ctx, streams.RoleViewer)
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil { // without the advice, which the line has
			err = inner
		}
		return doctor.Broker{}, err
	}
	defer conn.Close()
	nc := conn.NATS()
	b := doctor.Broker{Version: nc.ConnectedServerVersion(), MaxPayload: nc.MaxPayload()}
	b.JetStream, _ = nc.ConnectedServerJetStream()
	if b.RoundTrip, err = nc.RTT(); err != nil || !b.JetStream {
		return b, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return b, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// A stream's description has the time at which the server made it.
	before := time.Now()
	streamsOf := js.ListStreams(ctx)
	for info := range streamsOf.Info() {
		if !info.TimeStamp.IsZero() && !b.AheadKnown {
			b.Ahead, b.AheadKnown = info.TimeStamp.Sub(before.Add(time.Since(before)/2)), true
		}
	}
	return b, nil
}
