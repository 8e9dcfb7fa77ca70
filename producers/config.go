package producers

import (
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Config says how a producer works. DefaultConfig has the defaults.
type Config struct {
	// Name is the producer's in trajectories, events and logs; it must be unique in the run.
	Name string `koanf:"name"`
	// Concurrency is how many episodes run at once, > 0. They wait for tools and for the policy most of the
	// time, so it is far above the number of cores.
	Concurrency int `koanf:"concurrency"`
	// Evaluations is how many evaluation tickets run at once, beside the episodes of Concurrency, where eval.at is producers: their tokens
	// are sampled and their tools called beside training tickets, and this bounds their share. 0 takes none.
	Evaluations int `koanf:"evaluations"`
	// MaxDeliver is how often a ticket is tried before its sample is closed, > 0. It must not be above the
	// ticket stream's own bound. Times that it came back unworked are not counted.
	MaxDeliver int `koanf:"max_deliver"`
	// RetryDelay is how long a ticket rests after its first failure; it doubles with every further attempt, up to MaxRetryDelay.
	RetryDelay    time.Duration `koanf:"retry_delay"`
	MaxRetryDelay time.Duration `koanf:"max_retry_delay"`
	// Grace is how long running episodes may go on once the producer is told to stop. Episodes that do not end by then are cut off and
	// their tickets returned.
	Grace time.Duration `koanf:"grace"`
	// Settle is how long, after the grace, the giving back of tickets may take, > 0.
	Settle time.Duration `koanf:"settle"`
	// Journal has the journals of episodes.
	Journal JournalConfig `koanf:"journal"`
	// Values has the values of the states of episodes.
	Values ValuesConfig `koanf:"values"`
}

// DefaultConfig is 64 episodes and 8 evaluation tickets at once, three tries, and 10 s to stop.
func DefaultConfig() Config {
	return Config{
		Name: "producer", Concurrency: 256, Evaluations: 8, MaxDeliver: 3, RetryDelay: time.Second, MaxRetryDelay: 30 * time.Second,
		Grace: 10 * time.Second, Settle: 5 * time.Second, Journal: DefaultJournalConfig(),
	}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Given("name", c.Name, "name the producer"),
		check.Positive("concurrency", c.Concurrency),
		check.NotNegative("evaluations", c.Evaluations),
		check.Positive("max_deliver", c.MaxDeliver),
		check.NotNegative("retry_delay", c.RetryDelay),
		check.That(c.MaxRetryDelay >= c.RetryDelay, "max_retry_delay", "%s: must not be below retry_delay, %s", c.MaxRetryDelay, c.RetryDelay),
		check.NotNegative("grace", c.Grace),
		check.Positive("settle", c.Settle),
		check.Section("journal", c.Journal.Validate()),
		check.Section("values", c.Values.Validate()),
	)
}

// retryDelay is how long a ticket rests after its n-th delivery failed, n from 1.
func (c Config) retryDelay(n int) time.Duration {
	delay := c.RetryDelay
	for range n - 1 {
		if delay *= 2; delay >= c.MaxRetryDelay {
			return c.MaxRetryDelay
		}
	}
	return delay
}
