package vllm

import (
	"slices"
	"strconv"

	"github.com/weir-rl/weir/consumers/servers"
)

// Kind is vLLM.
type Kind struct{}

// Name is the value of inference.engine.
func (Kind) Name() string { return "vllm" }

// The temperatures above 0 that vLLM samples at: it takes a lower temperature for Coldest, and refuses a higher than Hottest (0.32.0,
// sampling_params.py:557 and :664).
const (
	Coldest float32 = 0.01
	Hottest float32 = 2
)

// Coldest implements servers.Coldest.
func (Kind) Coldest() float32 { return Coldest }

// Command is vllm serve with the settings that training needs: log-probabilities of the sampled distribution, no sampling defaults of the
// model's own, random numbers of its own (vLLM's seed is 0 otherwise, and two servers draw alike), the route of tokens and the routes of
// control, on the loopback interface, since no key covers the last.
func (Kind) Command(o servers.Start) (args, env []string) {
	args = slices.Clone(o.Command)
	if len(args) == 0 {
		args = []string{"vllm", "serve"}
	}
	args = append(args, o.Dir, "--host", "127.0.0.1", "--port", strconv.Itoa(o.Port),
		"--logprobs-mode", "processed_logprobs", "--generation-config", "vllm", "--max-logprobs", strconv.Itoa(servers.Alternatives),
		"--enable-prefix-caching", "--enable-prompt-tokens-details", "--seed", strconv.FormatUint(uint64(o.Seed), 10), "--max-num-seqs", strconv.Itoa(o.Slots))
	if o.Offers != nil && o.Offers(scaleOut) {
		args = append(args, scaleOut)
	}
	if o.MaxTokens > 0 {
		args = append(args, "--max-model-len", strconv.Itoa(o.MaxTokens))
	}
	args = append(args, o.Args...)
	args, env = usePlugin(o, args, []string{"VLLM_SERVER_DEV_MODE=1"})
	if o.APIKey != "" {
		env = append(env, "VLLM_API_KEY="+o.APIKey) // not in the command line, which everybody on the machine can read
	}
	return args, env
}

// scaleOut switches the route of tokens on, from 0.30.0 on; before, the route is there, and the argument ends the server.
const scaleOut = "--enable-scale-out"

// Mode is m.
func (Kind) Mode(m servers.Mode) servers.Mode { return m }

// Speak is vLLM's wire format for a server.
func (Kind) Speak(r *servers.Remote) servers.Speaker { return &speaker{remote: r} }
