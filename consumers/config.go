package consumers

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// SwapMode says what becomes of the caches when the weights change.
type SwapMode string

// The swap modes.
const (
	// SwapKeep leaves every cache as it is: no work is repeated, and the next token is sampled by the new weights
	// over keys and values of the old ones (PipelineRL, arXiv 2509.19128, in-flight weight updates).
	SwapKeep SwapMode = "keep"
	// SwapRecompute clears every cache; running sequences are extended again under the new weights before their next
	// token. A token's log-probability is then exactly that of the version it names, given the tokens before it.
	SwapRecompute SwapMode = "recompute"
	// SwapDrain lets the running calls finish on the old weights while new ones wait, then swaps and clears every
	// cache. All tokens of a call have one version.
	SwapDrain SwapMode = "drain"
)

// Config sizes an inference consumer. The zero value is not usable: start from DefaultConfig.
type Config struct {
	// Name is the consumer's, unique in the run; producers send an episode's next call to the consumer that served its
	// last. Defaults to "", which makes a name of the host's name and the process id.
	Name string `koanf:"name"`
	// Slots is how many sequences have a cache at once, running and idle. Defaults to 128.
	Slots int `koanf:"slots"`
	// MaxRunning is how many calls run at once, at most Slots; the other slots keep caches of episodes that wait for a
	// tool. Defaults to 0, which is Slots.
	MaxRunning int `koanf:"max_running"`
	// MaxTokens bounds a sequence, context and sampled tokens together. Defaults to 0, the model's own limit.
	MaxTokens int `koanf:"max_tokens"`
	// StepTokenBudget bounds the tokens of one step, so that a long prompt is taken in pieces and does not delay the
	// sequences that sample. At least Slots. Defaults to 512.
	StepTokenBudget int `koanf:"step_token_budget"`
	// Queue bounds the calls that wait for a slot; more are refused with Retry. Defaults to 1024.
	Queue int `koanf:"queue"`
	// ChunkTokens is how many sampled tokens are sent at a time. Defaults to 32.
	ChunkTokens int `koanf:"chunk_tokens"`
	// Swap is keep, recompute or drain. Defaults to keep.
	Swap SwapMode `koanf:"swap"`
	// DrainTimeout bounds how long running calls may go on when the process stops. Defaults to 5s.
	DrainTimeout time.Duration `koanf:"drain_timeout"`
	OpenAI       OpenAIConfig  `koanf:"openai"`
}

// OpenAIConfig says where the OpenAI-compatible HTTP server listens.
type OpenAIConfig struct {
	// Listen is host:port; "" serves nothing. Defaults to "".
	Listen string `koanf:"listen"`
	// Model is the name under which the policy is served. Defaults to "weir".
	Model string `koanf:"model"`
	// APIKey is asked for as a bearer token where it is not "". Defaults to "".
	APIKey string `koanf:"api_key"`
	// Stop are the tokens that end an answer to a request which names no stop of its own; they stay in the text. An empty
	// list of stops in the request does without. Defaults to none, in whose place weir takes the closing tags of the agent.
	Stop []string `koanf:"stop"`
	// MaxBodyBytes bounds a request. Defaults to 4 MiB.
	MaxBodyBytes int64 `koanf:"max_body_bytes"`
	// RequestTimeout bounds a call from its first byte to its last. Defaults to 5m.
	RequestTimeout time.Duration `koanf:"request_timeout"`
}

// DefaultConfig is as the fields say.
func DefaultConfig() Config {
	return Config{
		Slots: 128, StepTokenBudget: 512, Queue: 1024, ChunkTokens: 32, Swap: SwapKeep, DrainTimeout: 5 * time.Second,
		OpenAI: OpenAIConfig{Model: "weir", MaxBodyBytes: 4 << 20, RequestTimeout: 5 * time.Minute},
	}
}

// Validate reports every fault.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, f := range []struct {
		key string
		v   int
	}{{"slots", c.Slots}, {"queue", c.Queue}, {"chunk_tokens", c.ChunkTokens}} {
		if f.v <= 0 {
			bad("%s: %d: must be positive", f.key, f.v)
		}
	}
	if c.MaxRunning < 0 || c.MaxRunning > c.Slots {
		bad("max_running: %d: must be between 0 and slots, %d", c.MaxRunning, c.Slots)
	}
	if c.MaxTokens < 0 {
		bad("max_tokens: %d: must not be negative", c.MaxTokens)
	}
	if c.StepTokenBudget < c.Slots {
		bad("step_token_budget: %d: must be at least slots, %d", c.StepTokenBudget, c.Slots)
	}
	switch c.Swap {
	case SwapKeep, SwapRecompute, SwapDrain:
	default:
		bad("swap: %q: want keep, recompute or drain", c.Swap)
	}
	if c.DrainTimeout < 0 {
		bad("drain_timeout: %s: must not be negative", c.DrainTimeout)
	}
	if c.OpenAI.Listen != "" {
		errs = append(errs, c.OpenAI.validate())
	} else {
		errs = append(errs, c.OpenAI.bounds(0))
	}
	return errors.Join(errs...)
}

func (c OpenAIConfig) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("openai."+format, args...)) }
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		bad("listen: %q: want host:port such as 127.0.0.1:8000", c.Listen)
	}
	if c.Model == "" {
		bad("model: must not be empty")
	}
	return errors.Join(append(errs, c.bounds(1))...)
}

// bounds reports bounds of a request below least, which is 0 where there is no listener.
func (c OpenAIConfig) bounds(least int64) error {
	var errs []error
	if c.MaxBodyBytes < least {
		errs = append(errs, fmt.Errorf("openai.max_body_bytes: %d: must be positive", c.MaxBodyBytes))
	}
	if int64(c.RequestTimeout) < least {
		errs = append(errs, fmt.Errorf("openai.request_timeout: %s: must be positive", c.RequestTimeout))
	}
	return errors.Join(errs...)
}

// running is how many calls run at once.
func (c Config) running() int {
	if c.MaxRunning == 0 {
		return c.Slots
	}
	return c.MaxRunning
}
