package gateway

import (
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Config says where agents reach the gateway, and which requests it accepts.
type Config struct {
	// Listen is the address that agents ask the policy at; port 0 takes any free port of this machine.
	Listen string `koanf:"listen"`
	// PublicURL is how agents reach Listen where they cannot use that address, as through a proxy: http://host:port without a path. ""
	// is http:// and the address. Defaults to "".
	PublicURL string `koanf:"public_url"`
	// Stop are the tokens that end a turn of a model without a chat template. Defaults to none.
	Stop []string `koanf:"stop"`
	// Words are the words that the agent may write to the policy, and read from it, beside the questions and answers, for a vocabulary of
	// words. Defaults to none.
	Words []string `koanf:"words"`
	// Ignore are names of parameters of requests that are accepted and do nothing, where an agent sends a parameter that is not known or is
	// refused. A name within another is written with dots, such as tools.examples, and is taken out of each element of a list. Defaults to
	// none.
	Ignore []string `koanf:"ignore"`
	// Idle is how long an agent may ask for nothing without having finished, from 0: then its episode is given up, and its ticket
	// goes to another. So is an episode that waits for so long until an agent comes for it: its time begins then. 0 waits for as long as the
	// episode may take, and for an agent without end. Defaults to 5m.
	Idle time.Duration `koanf:"idle"`
	// MaxBodyBytes bounds the body of a request, > 0. Defaults to 16777216.
	MaxBodyBytes int64 `koanf:"max_body_bytes"`
	// MaxReward bounds the agent's own reward and each of its components by magnitude, > 0; an outcome beyond it is refused. Defaults to 1e6,
	// as trainer.limits.max_reward.
	MaxReward float64 `koanf:"max_reward"`
}

// DefaultConfig is as the fields say.
func DefaultConfig() Config {
	return Config{Listen: "127.0.0.1:0", Idle: 5 * time.Minute, MaxBodyBytes: 16 << 20, MaxReward: 1e6}
}

// Validate reports every fault.
func (c Config) Validate() error {
	var faults []error
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		faults = append(faults, fmt.Errorf("listen: %q: want host:port, such as 127.0.0.1:0", c.Listen))
	}
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" {
			faults = append(faults, fmt.Errorf("public_url: %q: want http://host:port without a path", c.PublicURL))
		}
	}
	return check.All(append(faults,
		check.NotNegative("idle", c.Idle),
		check.Positive("max_body_bytes", c.MaxBodyBytes),
		check.Positive("max_reward", c.MaxReward),
	)...)
}

// Texts are the texts that the agent may write to the policy.
func (c *Config) Texts() []string { return c.Words }
