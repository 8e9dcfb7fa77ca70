package weights

import "github.com/weir-rl/weir/internal/check"

// Config says where shards are kept and how they are sent.
type Config struct {
	// Dir is a folder that the trainer and all inference consumers share, on the same machine or a shared file system. Shards
	// are then files in it and the broker carries manifests alone. "" keeps them in the broker.
	Dir string `koanf:"dir"`
	// BaseEvery is how often whole weights are published; the versions between are deltas, each against the version before. 1
	// publishes every version whole. A consumer that joins late reads up to BaseEvery versions. At most 32.
	BaseEvery int `koanf:"base_every"`
}

// DefaultConfig keeps whole weights in the broker.
func DefaultConfig() Config { return Config{BaseEvery: 1} }

// maxBaseEvery leaves room in the history for the kept versions and their bases: WEIGHTS holds 64 manifests.
const maxBaseEvery = 32

// Validate reports every fault of the configuration.
func (c Config) Validate() error {
	return check.Between("base_every", c.BaseEvery, 1, maxBaseEvery)
}
