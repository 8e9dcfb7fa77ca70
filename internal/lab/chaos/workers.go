package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/lab/harness"
)

// The engines that train and sample.
const (
	// EngineNative is in the roles' own processes.
	EngineNative = "native"
	// EngineTorch is two ranks and a sampler of PyTorch, on the processor.
	EngineTorch = "torch"
	// EngineVLLM and EngineSGLang sample with two stand-ins of these servers, which inject faults of their own.
	EngineVLLM   = "vllm"
	EngineSGLang = "sglang"
)

// Engines are the values of Config.Engine.
func Engines() []string { return []string{EngineNative, EngineTorch, EngineVLLM, EngineSGLang} }

// Kinds of workers.
const (
	kindRank    = "rank"
	kindSampler = "sampler"
	kindServer  = "server"
)

// serverFaults happen at every so manieth chance: answers that are cut, reset, aborted in the queue or without a log-probability;
// loads that fail or lie; resumes that are lost.
const serverFaults = "cut:97+reset:131+queue:53+sentinel:61+load:7+lie:11+lost:9"

// StandIn is the command of the program that stands in for inference servers.
const StandIn = "fakeserver"

// WithEngine changes a configuration that Small has changed to a configuration of an engine. standIn is the program whose command StandIn is an
// inference server.
func WithEngine(c *config.Config, engine, standIn string) {
	switch engine {
	case EngineTorch:
		c.Model.Engine, c.Torch.Ranks, c.Torch.Device, c.Torch.StalledAfter = EngineTorch, 2, "cpu", 2*time.Minute
		c.Trainer.ColdStart.Steps = 40
		c.Trainer.BatchGroups = 4
	case EngineVLLM, EngineSGLang:
		c.Inference.Engine, c.Inference.Server.Count = engine, 2
		c.Inference.Server.Command = []string{standIn, StandIn, engine}
		c.Inference.Server.Args = []string{"--faults", serverFaults}
		c.Inference.Server.CheckEvery = time.Second
		c.Trainer.BatchGroups = 4
	}
}

// worker is a process that a role has started.
type worker struct {
	role *process
	kind string
	pid  int
}

// name is the worker's as Config.Kills and reports have it.
func (w worker) name() string { return w.role.name + "/" + w.kind }

// workerNames are the workers of a run, a name each.
func workerNames(mode, engine string) []string {
	trains, samples := roleTrainer, roleInference
	if mode == ModeEmbedded {
		trains, samples = roleUp, roleUp
	}
	switch engine {
	case EngineTorch:
		return []string{trains + "/" + kindRank, samples + "/" + kindSampler}
	case EngineVLLM, EngineSGLang:
		return []string{samples + "/" + kindServer}
	}
	return nil
}

// kindOf tells a worker by its command line; "" for any other program.
func kindOf(arguments []string) string {
	if n := len(arguments); n > 0 && strings.HasPrefix(arguments[n-1], "weir: ") {
		switch {
		case strings.Contains(arguments[n-1], "weir: trainer"):
			return kindRank
		case strings.Contains(arguments[n-1], "weir: sampler"):
			return kindSampler
		}
	}
	if len(arguments) > 1 && arguments[1] == StandIn {
		return kindServer
	}
	return ""
}

// livingWorkers are the living workers of all roles, and are remembered.
func (h *experiment) livingWorkers() []worker {
	if h.cfg.Engine == EngineNative {
		return nil
	}
	var out []worker
	for _, p := range h.roles {
		for _, pid := range childProcesses(p.childPid()) {
			if kind := kindOf(commandLine(pid)); kind != "" {
				out = append(out, worker{p, kind, pid})
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range out {
		h.known[w.pid] = w.kind
	}
	return out
}

// workerFault kills a worker or freezes it; false where there is none. Ranks and samplers are killed once a step: an engine that is
// lost again and again before a step is done, or a sampler before a batch is, does not work and ends its role.
func (h *experiment) workerFault(ctx context.Context, rng *rand.Rand) bool {
	all := h.livingWorkers()
	if len(all) == 0 {
		return false
	}
	w := all[rng.IntN(len(all))]
	if step := h.lastStep(); w.kind != kindServer {
		if last, killed := h.killedAt[w.kind]; killed && step <= last {
			return false
		}
		h.killedAt[w.kind] = step
	}
	if rng.IntN(4) == 0 {
		h.countEvent(h.report.Faults, "freeze "+w.name())
		_ = syscall.Kill(w.pid, syscall.SIGSTOP) // it may have ended
		_ = harness.Wait(ctx, time.Duration(rng.Int64N(int64(frozen))))
		_ = syscall.Kill(w.pid, syscall.SIGCONT)
		return true
	}
	h.killWorker(w)
	return true
}

func (h *experiment) killWorker(w worker) {
	if syscall.Kill(w.pid, syscall.SIGKILL) == nil {
		h.countEvent(h.report.Kills, w.name())
		h.printLine("kill -9 %s, process %d", w.name(), w.pid)
	}
}

// killNamed kills a worker by its name as soon as it is there.
func (h *experiment) killNamed(ctx context.Context, name string) bool {
	patience, cancel := context.WithTimeout(ctx, h.cfg.Patience)
	defer cancel()
	for {
		all := h.livingWorkers()
		if i := slices.IndexFunc(all, func(w worker) bool { return w.name() == name }); i >= 0 {
			h.killWorker(all[i])
			return true
		}
		if harness.Wait(patience, 100*time.Millisecond) != nil {
			h.reportTrouble("there was no %s to be killed", name)
			return false
		}
	}
}

// leftOver says which workers still run though their roles have ended.
func (h *experiment) leftOver(ctx context.Context) {
	patience, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for {
		var left []int
		for pid, kind := range h.known {
			if kindOf(commandLine(pid)) == kind {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			return
		}
		if harness.Wait(patience, 100*time.Millisecond) != nil {
			slices.Sort(left)
			h.reportTrouble("processes %v are left of roles that have ended", left)
			return
		}
	}
}
