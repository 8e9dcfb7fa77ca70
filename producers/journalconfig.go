package producers

import (
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// The values of JournalConfig.Mode.
const (
	JournalOff  = "off"
	JournalAuto = "auto"
	JournalOn   = "on"
)

// JournalConfig says which episodes keep a journal, from which another producer goes on with them. DefaultJournalConfig has the defaults.
type JournalConfig struct {
	// Mode is off, auto or on. With auto an episode writes its first record when it is After old, or before the first call of a tool that
	// may change something outside the episode, so that short episodes write nothing; with on it writes from its first token on.
	Mode string `koanf:"mode"`
	// After is how long an episode has gone on before auto writes its first record.
	After time.Duration `koanf:"after"`
	// Every is how long a sampled token or the answer of a tool may wait for others that are written with it, > 0: what a producer has of an
	// episode and has not written goes with the producer. An episode with many records writes less often: 200 records double the wait.
	Every time.Duration `koanf:"every"`
	// MaxBytes bounds the journal of an episode, > 0: about 9 bytes for each sampled token, 130 for each record, and the tools' texts. An
	// episode that needs more goes on without.
	MaxBytes int `koanf:"max_bytes"`
}

// DefaultJournalConfig keeps no journal.
func DefaultJournalConfig() JournalConfig {
	return JournalConfig{Mode: JournalOff, After: 2 * time.Second, Every: 100 * time.Millisecond, MaxBytes: 4 << 20}
}

// Validate reports every fault.
func (c JournalConfig) Validate() error {
	return check.All(
		check.OneOf("mode", c.Mode, JournalOff, JournalAuto, JournalOn),
		check.NotNegative("after", c.After),
		check.Positive("every", c.Every),
		check.Positive("max_bytes", c.MaxBytes),
	)
}
