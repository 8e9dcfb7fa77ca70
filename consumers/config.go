package consumers

import (
	"time"

	"github.com/weir-rl/weir/consumers/openai"
	"github.com/weir-rl/weir/internal/check"
)

// SwapMode is how the caches are treated when the weights change.
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
	// cache. All tokens of a call have the same version.
	SwapDrain SwapMode = "drain"
)

// Config sizes an inference consumer. The zero value is not usable: start from DefaultConfig.
type Config struct {
	// Name is the consumer's, unique in the run; producers send an episode's next call to the consumer that served its
	// last. Defaults to "", which makes a name of the host's name and the process id.
	Name string `koanf:"name"`
	// Slots is how many sequences have a cache at once, running and idle. Defaults to 320.
	Slots int `koanf:"slots"`
	// MaxRunning is how many calls run at once, at most Slots; the other slots keep caches of episodes that wait for a
	// tool. Defaults to 0, which is Slots.
	MaxRunning int `koanf:"max_running"`
	// MaxTokens bounds a sequence, context and sampled tokens together. Defaults to 0, the model's own limit.
	MaxTokens int `koanf:"max_tokens"`
	// Longest is how long a sequence may grow in the run: a server that takes no sequence so long is refused. A run sets it from
	// trainer.limits.max_tokens and its tasks' own; 0, the default, refuses none.
	Longest int `koanf:"-"`
	// StepTokenBudget bounds the tokens of a step, so that a long prompt is taken in pieces and does not delay the
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
	// Engine samples: "" is this process, by model.engine; native or torch is this process, by that engine; vllm and
	// sglang are servers, which are started here, or run already at the URLs of Servers. Defaults to "".
	Engine string `koanf:"engine"`
	// Servers are the URLs of running servers of that engine. Defaults to none, which starts them as Server describes.
	Servers []string      `koanf:"servers"`
	Server  ServerConfig  `koanf:"server"`
	OpenAI  openai.Config `koanf:"openai"`
}

// DefaultConfig is as the fields say.
func DefaultConfig() Config {
	return Config{
		Slots: 320, StepTokenBudget: 512, Queue: 1024, ChunkTokens: 32, Swap: SwapKeep, DrainTimeout: 5 * time.Second,
		Server: defaultServerConfig(),
		OpenAI: openai.DefaultConfig(),
	}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Positive("slots", c.Slots),
		check.Positive("queue", c.Queue),
		check.Positive("chunk_tokens", c.ChunkTokens),
		check.That(c.MaxRunning >= 0 && c.MaxRunning <= c.Slots, "max_running", "%d: must be between 0 and slots, %d", c.MaxRunning, c.Slots),
		check.NotNegative("max_tokens", c.MaxTokens),
		check.That(c.StepTokenBudget >= c.Slots, "step_token_budget", "%d: must be at least slots, %d", c.StepTokenBudget, c.Slots),
		check.OneOf("swap", string(c.Swap), string(SwapKeep), string(SwapRecompute), string(SwapDrain)),
		check.NotNegative("drain_timeout", c.DrainTimeout),
		c.validateServers(),
		check.Section("openai", c.OpenAI.Validate()),
	)
}

// mostRunning is how many calls run at once.
func (c Config) mostRunning() int {
	if c.MaxRunning == 0 {
		return c.Slots
	}
	return c.MaxRunning
}
