package openai

import (
	"cmp"
	"net"
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Config is of the OpenAI-compatible HTTP server.
type Config struct {
	// Listen is host:port; "" serves nothing. Defaults to "".
	Listen string `koanf:"listen"`
	// Model is the name under which the policy is served. Defaults to "weir".
	Model string `koanf:"model"`
	// APIKey is asked for as a bearer token where it is not "". Defaults to "".
	APIKey string `koanf:"api_key"`
	// Stop are the tokens that end an answer to a request which names no stop of its own; they stay in the text. An empty
	// list of stops in the request does without. Defaults to none, in whose place weir takes the closing tags of the agent.
	Stop []string `koanf:"stop"`
	// Shaping is how a request is treated that would draw from another distribution than the policy's, by top_p, penalties, a
	// response_format or a forced tool_choice: refuse, or ignore, which samples from the policy as ever and names the ignored settings in the
	// header Weir-Ignored. ignore is for evaluation by programs that must send such settings: a request for return_token_ids, as training
	// sends it, is refused all the same. Defaults to refuse.
	Shaping string `koanf:"shaping"`
	// MaxBodyBytes bounds a request. Defaults to 4 MiB.
	MaxBodyBytes int64 `koanf:"max_body_bytes"`
	// RequestTimeout bounds a call from its first byte to its last. Defaults to 5m.
	RequestTimeout time.Duration `koanf:"request_timeout"`
}

// The values of Config.Shaping.
const (
	ShapingRefuse = "refuse"
	ShapingIgnore = "ignore"
)

// DefaultConfig is as the fields say.
func DefaultConfig() Config {
	return Config{Model: "weir", Shaping: ShapingRefuse, MaxBodyBytes: 4 << 20, RequestTimeout: 5 * time.Minute}
}

// Validate reports every fault. A Config that listens nowhere may have bounds of 0.
func (c Config) Validate() error {
	if c.Listen == "" {
		return c.validateBounds(0)
	}
	_, _, err := net.SplitHostPort(c.Listen)
	return check.All(
		check.That(err == nil, "listen", "%q: want host:port such as 127.0.0.1:8000", c.Listen),
		check.Given("model", c.Model, "name the model"),
		c.validateBounds(1),
	)
}

// validateBounds reports bounds of a request below least, which is 0 where there is no listener.
func (c Config) validateBounds(least int64) error {
	return check.All(
		check.OneOf("shaping", cmp.Or(c.Shaping, ShapingRefuse), ShapingRefuse, ShapingIgnore),
		check.That(c.MaxBodyBytes >= least, "max_body_bytes", "%d: must be positive", c.MaxBodyBytes),
		check.That(int64(c.RequestTimeout) >= least, "request_timeout", "%s: must be positive", c.RequestTimeout),
	)
}
