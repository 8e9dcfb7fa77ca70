package messages

import (
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Config bounds the archive of messages.
type Config struct {
	// Bytes bounds the segments' size on the disk: the oldest are removed first, the newest stays. 0 keeps no messages.
	Bytes int64 `koanf:"bytes"`
	// Age bounds how long a segment stays after it was written; 0 is no bound.
	Age time.Duration `koanf:"age" min:"0s"`
	// Dir is the folder of the segments, which may be on another disk, or a mounted object store; empty is messages in the folder of the
	// archive.
	Dir string `koanf:"dir"`
}

// minBytes is the smallest bound.
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
