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
		"--sampling-defaults", "openai", "--incremental-streaming-output", "--max-running-requests", strconv.Itoa(o.Slots))
	if o.MaxTokens > 0 {
		args = append(args, "--context-length", strconv.Itoa(o.MaxTokens))
	}
	if o.APIKey != "" {
		args = append(args, "--api-key", o.APIKey)
	}
	if o.AdminAPIKey != "" {
		args = append(args, "--admin-api-key", o.AdminAPIKey)
	}
	return append(args, o.Args...), nil
}

// Speak is SGLang's wire format for one server.
func (Kind) Speak(r *servers.Remote) servers.Speaker { return &speaker{remote: r} }
