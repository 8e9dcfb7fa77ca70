package archive

import "github.com/weir-rl/weir/internal/check"

// Folder is the archive's name within the folder of checkpoints.
const Folder = "archive"

// Config says how much is kept.
type Config struct {
	// Bytes bounds what the archive takes on the disk: the oldest goes first. 0 writes none.
	Bytes int64 `koanf:"bytes" default:"134217728"`
	// Samples is of how many trajectories of a step the numbers of each token are kept, and as many of those that are refused or dropped
	// before it are kept whole; groups are not cut. -1 is all, 0 none: then the lines alone are kept.
	Samples int `koanf:"samples" default:"64" min:"-1"`
}

// DefaultConfig has the defaults.
func DefaultConfig() Config { return check.Default[Config]() }

// least is the smallest bound that has room for two segments.
const least = 1 << 20

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.That(c.Bytes == 0 || c.Bytes >= least, "bytes", "%d: must be 0 for none, or at least %d", c.Bytes, least),
		check.Fields(c),
	)
}

// Unread says why nothing depends on a key of the section, beginning with the other key that says so; "" if something does.
func (c Config) Unread(key string) string {
	if key != "bytes" && c.Bytes == 0 {
		return "bytes is 0"
	}
	return ""
}
