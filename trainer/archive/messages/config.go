package messages

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Config bounds the archive of messages.
type Config struct {
	// Bytes bounds the segments' size on the disk: the oldest are removed first, the newest stays. 0 keeps no messages.
	Bytes int64 `koanf:"bytes"`
	// By says which process keeps them: the trainer, or role for weir archive, a role of its own. The trainer then purges no message before
	// that role has kept it; without archive.required it purges when the stream is half full, and counts the messages that were not kept.
	By string `koanf:"by" default:"trainer" oneof:"trainer role"`
	// Age bounds how long a segment stays after it was written; 0 is no bound.
	Age time.Duration `koanf:"age" min:"0s"`
	// Dir is the folder of the segments, which may be on another disk, or s3://bucket/prefix, the bucket of a store that speaks S3, where
	// they lie below prefix/<run>; empty is messages in the folder of the archive.
	Dir string   `koanf:"dir"`
	S3  S3Config `koanf:"s3"`
}

// S3Config says how a bucket in messages.dir is reached. Credentials come from AWS_ACCESS_KEY_ID and its like in the environment, from a
// profile in ~/.aws/credentials, or from the machine's role, and never from a configuration.
type S3Config struct {
	// Endpoint is the store's URL, such as https://minio.example:9000; empty is that of Amazon.
	Endpoint string `koanf:"endpoint"`
	// Region is the bucket's; empty is AWS_REGION, else the region that the store names.
	Region string `koanf:"region"`
	// PathStyle has the bucket's name in the path of every request. False has it there too, except at Amazon, where it is in the host's name.
	PathStyle bool `koanf:"path_style"`
	// SpoolBytes bounds the segments that wait, synced, in the archive's folder messages until the bucket has confirmed them. When that many
	// wait, a run with archive.required waits before its next step; another goes on and counts the messages that it does not keep.
	SpoolBytes int64 `koanf:"spool_bytes" default:"1073741824" min:"0"`
	// Delay is how long a small segment waits on this disk to be joined with the next, so that the bucket has few objects.
	Delay time.Duration `koanf:"delay" default:"1m" min:"0s"`
}

// The values of By; "" is the trainer.
const (
	byTrainer = "trainer"
	byRole    = "role"
)

// ByRole reports whether a role of its own keeps the messages.
func (c Config) ByRole() bool { return c.Bytes != 0 && c.By == byRole }

// bucketScheme begins a Dir that is a bucket.
const bucketScheme = "s3://"

// InBucket reports whether the segments are in a bucket.
func (c Config) InBucket() bool { return strings.HasPrefix(c.Dir, bucketScheme) }

// Bucket returns the bucket's name and the prefix, which begins and ends without a slash and may be empty.
func (c Config) Bucket() (name, prefix string) {
	name, prefix, _ = strings.Cut(strings.TrimPrefix(c.Dir, bucketScheme), "/")
	return name, strings.Trim(prefix, "/")
}

// bucketName matches the names of buckets.
var bucketName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,62}$`)

// validateBucket reports every fault of the keys of a bucket. No fault repeats a value that may hold a secret.
func (c Config) validateBucket() error {
	if !c.InBucket() {
		return nil
	}
	name, prefix := c.Bucket()
	var faults []error
	switch {
	case strings.ContainsAny(c.Dir, "@?#"):
		faults = append(faults, errors.New("dir: only s3://bucket/prefix; credentials are read from the environment or ~/.aws/credentials"))
	case !bucketName.MatchString(name):
		faults = append(faults, fmt.Errorf("dir: %q is no bucket's name: write s3://bucket/prefix", name))
	case strings.Contains(prefix, "//"), slices.Contains(strings.Split(prefix, "/"), "."), slices.Contains(strings.Split(prefix, "/"), ".."):
		faults = append(faults, fmt.Errorf("dir: prefix %q has an empty part, or a dot or two for a part", prefix))
	}
	if c.S3.Endpoint != "" {
		u, err := url.Parse(c.S3.Endpoint)
		switch {
		case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
			faults = append(faults, errors.New("s3.endpoint: must be a URL such as https://minio.example:9000"))
		case u.User != nil:
			faults = append(faults, errors.New("s3.endpoint: without credentials: they are read from the environment or ~/.aws/credentials"))
		case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "":
			faults = append(faults, errors.New("s3.endpoint: scheme, host and port alone; the bucket is in dir"))
		}
	}
	return errors.Join(append(faults,
		check.That(c.S3.SpoolBytes >= minBytes, "s3.spool_bytes", "%d: must be at least %d", c.S3.SpoolBytes, minBytes),
	)...)
}

// minBytes is the smallest bound.
const minBytes = 1 << 20

// Validate reports every fault.
func (c Config) Validate() error {
	c.By = cmp.Or(c.By, byTrainer)
	return check.All(
		check.That(c.Bytes == 0 || c.Bytes >= minBytes, "bytes", "%d: must be 0 for none, or at least %d", c.Bytes, minBytes),
		check.Fields(c),
		c.validateBucket(),
	)
}

// Unread returns the reason why nothing depends on a key of the section, beginning with the other key that causes it; "" if something does.
func (c Config) Unread(key string) string {
	if key != "bytes" && c.Bytes == 0 {
		return "bytes is 0"
	}
	if strings.HasPrefix(key, "s3.") && !c.InBucket() {
		return "dir is no bucket"
	}
	return ""
}
