package branch

import (
	"github.com/weir-rl/weir/internal/check"
)

// Config configures how groups branch. With Trunks 0 no group branches, and the rest is not read.
type Config struct {
	// Trunks is how many samples of a group are issued first and from their beginning. When all of them have come, or cannot come any more,
	// the others are issued, each as a fork of a trunk: a fork takes over the trunk's turns up to a turn where the policy became unsure,
	// makes the calls anew, and goes on by itself. Below group_size; 0 issues all samples at once.
	Trunks int `koanf:"trunks" min:"0"`
	// Tokens is how many of a turn's first tokens measure how unsure the policy was: the mean of their negative log-probabilities, which
	// estimates the entropy.
	Tokens int `koanf:"tokens" default:"20" above:"0"`
	// Alpha, Gamma, Penalty and Threshold decide the worth of a place: (alpha + gamma * rise) * (1 - penalty * forks), where rise is how
	// much higher the entropy is than in the trunk's first turn, over the logarithm of the vocabulary's size, and forks is how many the
	// trunk has already. The best place is taken again and again; where none is worth more than the threshold the sample is issued from its
	// beginning. Alpha defaults to 0.5.
	Alpha float64 `koanf:"alpha" default:"0.5"`
	// Gamma is the weight of the rise in entropy.
	Gamma float64 `koanf:"gamma" default:"0.5" min:"0"`
	// Penalty is how much each fork of a trunk lowers the worth of the next fork.
	Penalty float64 `koanf:"penalty" default:"0.2" min:"0" max:"1"`
	// Threshold is the worth that a place must exceed.
	Threshold float64 `koanf:"threshold" default:"0.3"`
	// MaxTokens bounds the tokens that a fork takes over, all segments together: a ticket carries them, at about 9 bytes each, in a single
	// message of the broker.
	MaxTokens int `koanf:"max_tokens" default:"32768" above:"0"`
}

// Default branches nothing.
func Default() Config { return check.Default[Config]() }

// Validate reports every fault.
func (c Config) Validate() error { return check.Fields(c) }

// Unread returns the reason why nothing depends on a key of the section, beginning with the other key that causes it; "" if something does.
func (c Config) Unread(key string) string {
	if key != "trunks" && c.Trunks == 0 {
		return "trunks is 0"
	}
	return ""
}
