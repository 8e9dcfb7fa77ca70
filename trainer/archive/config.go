package archive

import "github.com/weir-rl/weir/internal/check"

// Folder is the archive's name within the folder of checkpoints.
const Folder = "archive"

// Config bounds the archive.
type Config struct {
	// Bytes bounds the archive's size on the disk: the oldest segments are removed first. 0 writes no archive.
	Bytes int64 `koanf:"bytes" default:"134217728"`
	// Samples bounds, for each step, the trajectories whose numbers of each token are kept, and the refused or dropped trajectories that
	// are kept whole; groups are not cut. -1 keeps all; 0 keeps the lines alone.
	Samples int `koanf:"samples" default:"64" min:"-1"`
}

// DefaultConfig has the defaults.
func DefaultConfig() Config { return check.Default[Config]() }

// minBytes is the smallest bound that has room for two segments.
const minBytes = 1 << 20

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.That(c.Bytes == 0 || c.Bytes >= minBytes, "bytes", "%d: must be 0 for none, or at least %d", c.Bytes, minBytes),
		check.Fields(c),
	)
}

// Unread returns the reason why nothing depends on a key of the section, beginning with the other key that causes it; "" if something does.
func (c Config) Unread(key string) string {
	if key != "bytes" && c.Bytes == 0 {
		return "bytes is 0"
	}
	return ""
}
