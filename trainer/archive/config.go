package archive

import (
	"path/filepath"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// Folder is the archive's name within the folder of checkpoints.
const Folder = "archive"

// messagesFolder is the folder of the stream's messages within that of the archive.
const messagesFolder = "messages"

// Config bounds the archive: the lines and numbers that people look at, and, in Messages, the stream's messages themselves.
type Config struct {
	// Bytes bounds the size of the lines and numbers on the disk: the oldest segments are removed first. 0 writes none.
	Bytes int64 `koanf:"bytes" default:"134217728"`
	// Samples bounds, for each step, the trajectories whose numbers of each token are kept, and the refused or dropped trajectories that
	// are kept whole; groups are not cut. -1 keeps all; 0 keeps the lines alone.
	Samples int `koanf:"samples" default:"64" min:"-1"`
	// Messages has the trainer keep every message of the trajectory stream before it is purged: each trajectory that was published, whatever
	// became of it.
	Messages messages.Config `koanf:"messages"`
	// Required has the run stop when a message cannot be kept, as on a full disk, and train on no trajectory before it is kept. False lets
	// the run go on, and counts the messages that were purged before they were kept.
	Required bool `koanf:"required"`
}

// MessagesFolder is the folder of the stream's messages; where they are in a bucket, that of the messages which the bucket does not have
// yet. checkpoints is the folder of the run's checkpoints.
func (c Config) MessagesFolder(checkpoints string) messages.Folder {
	if c.Messages.Dir != "" && !c.Messages.InBucket() {
		return messages.Folder{Dir: c.Messages.Dir}
	}
	return messages.Folder{Dir: filepath.Join(checkpoints, Folder, messagesFolder)}
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
		check.That(!c.Required || c.Messages.Bytes != 0, "required", "true: nothing is kept: set messages.bytes"),
	)
}

// Unread returns the reason why nothing depends on a key of the section, beginning with the other key that causes it; "" if something does.
func (c Config) Unread(key string) string {
	section, name, nested := strings.Cut(key, ".")
	switch {
	case nested && section == "messages":
		if why := c.Messages.Unread(name); why != "" {
			return section + "." + why
		}
	case key == "required" && c.Messages.Bytes == 0:
		return "messages.bytes is 0"
	case key == "samples" && c.Bytes == 0:
		return "bytes is 0"
	}
	return ""
}
