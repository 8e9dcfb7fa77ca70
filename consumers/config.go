package consumers

import (
	"cmp"
	"net"
	"time"

	"github.com/weir-rl/weir/internal/check"
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
	// Longest is how long a sequence may grow in the run: a server that takes no sequence so long is refused. A run sets it from
	// trainer.limits.max_tokens and its tasks' own; 0, the default, refuses none.
	Longest int `koanf:"-"`
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
	// Engine is what samples: "" is this process, by model.engine; native or torch is this process, by that engine; vllm and
	// sglang are servers, which are started here or run already where Servers says. Defaults to "".
	Engine string `koanf:"engine"`
	// Servers are the URLs of running servers of that engine. Defaults to none, which starts them: Server says how.
	Servers []string     `koanf:"servers"`
	Server  ServerConfig `koanf:"server"`
	OpenAI  OpenAIConfig `koanf:"openai"`
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
	// Shaping says what becomes of a request that would draw from another distribution than the policy's, by top_p, penalties, a
	// response_format or a forced tool_choice: refuse, or ignore, which samples from the policy as ever and names what was ignored in the
	// header Weir-Ignored. ignore is for evaluation by programs that must send such settings: a request for return_token_ids, as training
	// sends it, is refused all the same. Defaults to refuse.
	Shaping string `koanf:"shaping"`
	// MaxBodyBytes bounds a request. Defaults to 4 MiB.
	MaxBodyBytes int64 `koanf:"max_body_bytes"`
	// RequestTimeout bounds a call from its first byte to its last. Defaults to 5m.
	RequestTimeout time.Duration `koanf:"request_timeout"`
}

// What becomes of requests that would draw from another distribution than the policy's.
const (
	ShapingRefuse = "refuse"
	ShapingIgnore = "ignore"
)

// DefaultConfig is as the fields say.
func DefaultConfig() Config {
	return Config{
		Slots: 128, StepTokenBudget: 512, Queue: 1024, ChunkTokens: 32, Swap: SwapKeep, DrainTimeout: 5 * time.Second,
		Server: defaultServerConfig(),
		OpenAI: OpenAIConfig{Model: "weir", Shaping: ShapingRefuse, MaxBodyBytes: 4 << 20, RequestTimeout: 5 * time.Minute},
	}
}

// Validate reports every fault.
func (c Config) Validate() error {
	openai := c.OpenAI.bounds(0)
	if c.OpenAI.Listen != "" {
		openai = c.OpenAI.validate()
	}
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
		check.Section("openai", openai),
	)
}

func (c OpenAIConfig) validate() error {
	_, _, err := net.SplitHostPort(c.Listen)
	return check.All(
		check.That(err == nil, "listen", "%q: want host:port such as 127.0.0.1:8000", c.Listen),
		check.Given("model", c.Model, "name the model"),
		c.bounds(1),
	)
}

// bounds reports bounds of a request below least, which is 0 where there is no listener.
func (c OpenAIConfig) bounds(least int64) error {
	return check.All(
		check.OneOf("shaping", cmp.Or(c.Shaping, ShapingRefuse), ShapingRefuse, ShapingIgnore),
		check.That(c.MaxBodyBytes >= least, "max_body_bytes", "%d: must be positive", c.MaxBodyBytes),
		check.That(int64(c.RequestTimeout) >= least, "request_timeout", "%s: must be positive", c.RequestTimeout),
	)
}

// running is how many calls run at once.
func (c Config) running() int {
	if c.MaxRunning == 0 {
		return c.Slots
	}
	return c.MaxRunning
}
