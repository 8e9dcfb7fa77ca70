package sglang

import (
	"slices"
	"strconv"

	"github.com/weir-rl/weir/consumers/servers"
)

// Kind is SGLang.
type Kind struct{}

// Name is the value of inference.engine.
func (Kind) Name() string { return "sglang" }

// Command is SGLang's launch_server on the loopback interface, without sampling defaults of the model's own.
func (Kind) Command(o servers.Start) (args, env []string) {
	args = slices.Clone(o.Command)
	if len(args) == 0 {
		args = []string{"python3", "-m", "sglang.launch_server"}
	}
	args = append(args, "--model-path", o.Dir, "--host", "127.0.0.1", "--port", strconv.Itoa(o.Port),
		"--sampling-defaults", "openai", "--incremental-streaming-output", "--enable-metrics", "--max-running-requests", strconv.Itoa(o.Slots))
	if o.MaxTokens > 0 {
		args = append(args, "--context-length", strconv.Itoa(o.MaxTokens))
	}
	if o.KeyFile != "" {
		args = append(args, "--config", o.KeyFile)
	}
	// By default /health samples a token, and waits for the end of anybody's pause.
	env = []string{"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0"}
	if o.Plugin != "" {
		env = append(env, servers.PythonPath(o.Plugin))
	}
	return append(args, o.Args...), env
}

// Keys are the keys as a file of SGLang's arguments.
func (Kind) Keys(o servers.Start) string {
	text := ""
	if o.APIKey != "" {
		text += "api-key: " + strconv.Quote(o.APIKey) + "\n"
	}
	if o.AdminAPIKey != "" {
		text += "admin-api-key: " + strconv.Quote(o.AdminAPIKey) + "\n"
	}
	return text
}

// Mode is m, but for Recompute: calls that are retracted find their own context in the cache again, with keys and values of the weights
// before, and a cache that is emptied while they wait ends the server. Calls that are cut go on after their tokens, and are computed anew
// too.
func (Kind) Mode(m servers.Mode) servers.Mode {
	if m == servers.Recompute {
		return servers.Abort
	}
	return m
}

// Speak is SGLang's wire format for a server.
func (Kind) Speak(r *servers.Remote) servers.Speaker { return &speaker{remote: r} }
