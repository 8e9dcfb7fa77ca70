package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/doctor"
	"github.com/weir-rl/weir/producers/sandbox"
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
		for i := range lines {
			if lines[i].Check == "sandbox" {
				lines[i] = sandboxLine(cmd.Context(), s.cfg)
			}
		}
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
			err = &statusError{exitRuntime, errSaid}
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

// sandboxLine starts a program as tools that run code do, by the very same command line.
func sandboxLine(ctx context.Context, cfg *config.Config) doctor.Line {
	line := doctor.Line{Check: "sandbox", Verdict: doctor.OK}
	needed := false
	for _, t := range cfg.Active() {
		needed = needed || slices.Contains(sandboxedRewards, cfg.Tasks[t].Reward.Type)
		for _, name := range cfg.Tasks[t].Tools {
			needed = needed || slices.Contains(sandboxedTools, cfg.Tools[name].Type) || sandboxed(cfg.Tools[name].Own)
		}
		if agent := cfg.Agents[cfg.Tasks[t].Agent]; agent != nil {
			needed = needed || sandboxed(agent.Own)
		}
	}
	pool, err := sandbox.Open(ctx, cfg.Sandbox)
	if err == nil {
		line.Detail = "tier " + pool.Tier() + ": a program was started, confined and ended"
		if pool.Tier() != sandbox.TierFull {
			line.Verdict, line.Remedy = doctor.Warn, "see docs/sandbox.md for what this tier does not hold"
		}
		err = pool.Close()
	}
	if err == nil {
		return line
	}
	line.Verdict, line.Detail = doctor.Unused, err.Error()
	var refusal *sandbox.RefusedError
	if errors.As(err, &refusal) {
		line.Detail = "tier " + refusal.Tier + ": " + refusal.Cause
	}
	if needed {
		line.Verdict = doctor.Fail
		if refusal != nil {
			line.Remedy = refusal.Remedy
		}
	}
	return line
}

// sandboxed says whether the configuration of a tool or an agent starts a program of the operator's in a sandbox.
func sandboxed(own any) bool {
	by, ok := own.(interface{ Sandboxed() bool })
	return ok && by.Sandboxed()
}

// sandboxedTools are the types of tools that run what a model wrote in sandboxes.
var sandboxedTools = []string{"python", "shell", "files"}

// sandboxedRewards are the types of rewards that do.
var sandboxedRewards = []string{"code"}

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
	if old, ok := errors.AsType[*streams.ServerTooOldError](err); ok {
		return doctor.Broker{Version: old.Version, OldestVersion: streams.OldestServer, JetStream: true}, nil
	}
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil { // without the advice, which the line has
			err = inner
		}
		return doctor.Broker{}, err
	}
	defer conn.Close()
	nc := conn.NATS()
	b := doctor.Broker{Version: nc.ConnectedServerVersion(), OldestVersion: streams.OldestServer, MaxPayload: nc.MaxPayload()}
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
			b.Ahead, _ = streams.Ahead(info.TimeStamp, before, time.Now())
			b.AheadKnown = true
		}
	}
	return b, nil
}
