package toolworker

import (
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Config sets how a tool worker works. DefaultConfig has the defaults.
type Config struct {
	// Name is the worker's in subjects, events and logs: letters, digits, - and _; it must be unique in the run. Defaults to a
	// name made of the machine's name and the process.
	Name string `koanf:"name"`
	// Sessions is how many episodes may have a session at once, > 0; fewer where their tools would need more sandboxes than
	// sandbox.most, or more Starlark workers than there may be. A full worker refuses the next, which goes to another worker
	// or waits. Defaults to 256.
	Sessions int `koanf:"sessions"`
	// Calls is how many calls are worked on at once, > 0. Defaults to 32.
	Calls int `koanf:"calls"`
	// Queue is how many calls may wait for that, >= 0. A call beyond is refused, and its caller waits and asks again. Defaults to 256.
	Queue int `koanf:"queue"`
	// RetryAfter is how long a refused caller is asked to wait, > 0. Defaults to 500ms.
	RetryAfter time.Duration `koanf:"retry_after"`
	// Idle is how long a session may be without a request before it is closed, > 0: longer than a turn of the policy takes. Defaults
	// to 10m.
	Idle time.Duration `koanf:"idle"`
	// Grace is how long the open sessions may go on once the worker is asked to stop, >= 0; it takes no new sessions. Sessions
	// that are open after that are closed, and their episodes are given back. A session that was silent for as long, as a dead
	// producer's is, is closed before. Defaults to 30s.
	Grace time.Duration `koanf:"grace"`
}

// DefaultConfig is 256 sessions and 32 calls at once.
func DefaultConfig() Config {
	return Config{
		Sessions: 256, Calls: 32, Queue: 256, RetryAfter: 500 * time.Millisecond, Idle: 10 * time.Minute, Grace: 30 * time.Second,
	}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Between("sessions", c.Sessions, 1, 100_000),
		check.Between("calls", c.Calls, 1, 100_000),
		check.Between("queue", c.Queue, 0, 100_000),
		check.Positive("retry_after", c.RetryAfter),
		check.Positive("idle", c.Idle),
		check.NotNegative("grace", c.Grace),
	)
}
