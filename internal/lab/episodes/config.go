package episodes

import (
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
)

// The values of Config.Tools.
const (
	// ToolsLogNormal take a log-normal time: a median of Config.Tool, and a standard deviation of 1 in the logarithm.
	ToolsLogNormal = "lognormal"
	// ToolsBimodal take half of Config.Tool nine times in ten, and twelve times Config.Tool else.
	ToolsBimodal = "bimodal"
)

// Config says which episodes are played, and how they are broken.
type Config struct {
	// Episodes are tickets, Producers processes, each with Slots episodes at once, Engines inference engines.
	Episodes  int `json:"episodes"`
	Producers int `json:"producers"`
	Slots     int `json:"slots"`
	Engines   int `json:"engines"`
	// Engine is EngineStandIn or EngineNative.
	Engine string `json:"engine"`
	// Tools is ToolsLogNormal or ToolsBimodal, Tool the time of a call, Token that of a token.
	Tools string        `json:"tools"`
	Tool  time.Duration `json:"tool"`
	Token time.Duration `json:"token"`
	// Kill is the time between kills of a producer, in turn; 0 kills none. Lease is the length of a lease.
	Kill  time.Duration `json:"kill"`
	Lease time.Duration `json:"lease"`
	// Journal is the journal of the episodes.
	Journal producers.JournalConfig `json:"journal"`
	Seed    uint64                  `json:"seed"`
}

// Default is some hundreds of episodes of ten seconds, and dozens of kills.
func Default() Config {
	journal := producers.DefaultJournalConfig()
	journal.Mode = producers.JournalOn
	return Config{
		Episodes: 700, Producers: 2, Slots: 16, Engines: 2, Engine: EngineStandIn, Tools: ToolsLogNormal,
		Tool: 500 * time.Millisecond, Token: 5 * time.Millisecond,
		Kill: 10 * time.Second, Lease: 3 * time.Second, Journal: journal, Seed: 1,
	}
}

// Validate reports every fault.
func (c *Config) Validate() error {
	return check.All(
		check.Positive("episodes", c.Episodes),
		check.Positive("producers", c.Producers),
		check.Positive("slots", c.Slots),
		check.Positive("engines", c.Engines),
		check.OneOf("engine", c.Engine, EngineStandIn, EngineNative),
		check.OneOf("tools", c.Tools, ToolsLogNormal, ToolsBimodal),
		check.NotNegative("tool", c.Tool),
		check.Positive("token", c.Token),
		check.NotNegative("kill", c.Kill),
		check.Positive("lease", c.Lease),
		check.Section("journal", c.Journal.Validate()),
	)
}
