package assembly

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/doctor"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/streams"
)

// ExamineSandbox starts a program as tools that run code do, by the very same command line.
func ExamineSandbox(ctx context.Context, cfg *config.Config) doctor.Line {
	line := doctor.Line{Check: "sandbox", Verdict: doctor.OK}
	needed := false
	for _, t := range cfg.Active() {
		needed = needed || slices.Contains(sandboxedRewards, cfg.Tasks[t].Reward.Type)
		for _, name := range cfg.Tasks[t].Tools {
			needed = needed || slices.Contains(sandboxedTools, cfg.Tools[name].Type) || startsSandbox(cfg.Tools[name].Own)
		}
		if agent := cfg.Agents[cfg.Tasks[t].Agent]; agent != nil {
			needed = needed || startsSandbox(agent.Own)
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

// startsSandbox reports whether the configuration of a tool or an agent starts a program of the operator's in a sandbox.
func startsSandbox(own any) bool {
	by, ok := own.(tools.Sandboxed)
	return ok && by.Sandboxed()
}

// sandboxedTools are the types of tools that run a model's code in sandboxes.
var sandboxedTools = []string{"python", "shell", "files"}

// sandboxedRewards are the types of rewards that do.
var sandboxedRewards = []string{"code"}

// MachineNeeds returns the needs of a configuration on a machine that runs all of its roles.
func MachineNeeds(cfg *config.Config) (doctor.Needs, error) {
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
	n.CUDA = n.SGLang || n.Torch && cfg.Torch.Device == "cuda"
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

// AskBroker asks the configured broker for its version and its abilities.
func (k *Connector) AskBroker(ctx context.Context, _ string) (doctor.Broker, error) {
	conn, err := k.ConnectSoon(ctx, streams.RoleViewer)
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
