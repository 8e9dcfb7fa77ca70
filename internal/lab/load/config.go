package load

import (
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Config describes the load.
type Config struct {
	// Producers have a connection each, and Slots episodes at once.
	Producers int `json:"producers"`
	Slots     int `json:"slots"`
	// Tokens are the tokens of a trajectory, and TurnTokens are sampled in each of its Turns.
	Tokens     int `json:"tokens"`
	Turns      int `json:"turns"`
	TurnTokens int `json:"turn_tokens"`
	// Token is the time that an engine takes for a token, Tool the time of a tool call.
	Token time.Duration `json:"token"`
	Tool  time.Duration `json:"tool"`
	// Engines have EngineSlots calls at once; without an engine the producer waits for the tokens itself.
	Engines     int `json:"engines"`
	EngineSlots int `json:"engine_slots"`
	// For is how long the load is measured, Lease the length of a lease, which is renewed every third of it.
	For   time.Duration `json:"for"`
	Lease time.Duration `json:"lease"`
	// Sync has the broker sync every message to its disk.
	Sync bool `json:"sync"`
}

// Default is an agent of four turns with a slow tool.
func Default() Config {
	return Config{
		Producers: 16, Slots: 4, Tokens: 2000, Turns: 4, TurnTokens: 64, Token: 10 * time.Millisecond, Tool: 500 * time.Millisecond,
		Engines: 1, EngineSlots: 64, For: 20 * time.Second, Lease: 6 * time.Second, Sync: true,
	}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Between("producers", c.Producers, 1, 4096),
		check.Between("slots", c.Slots, 1, 256),
		check.Between("tokens", c.Tokens, 512, 1<<16),
		check.Between("turns", c.Turns, 1, 64),
		check.Between("turn-tokens", c.TurnTokens, 1, 1<<14),
		check.Between("engines", c.Engines, 0, 64),
		check.Between("engine-slots", c.EngineSlots, 1, 4096),
		check.That(c.Token >= 0 && c.Tool >= 0, "token", "%s, and tool %s: must not be negative", c.Token, c.Tool),
		check.That(c.For > 0 && c.Lease >= time.Second, "for", "%s: must be positive, and lease %s at least 1s", c.For, c.Lease),
	)
}

// samplingTime is the time of an episode's tokens where no engine is full.
func (c Config) samplingTime() time.Duration { return time.Duration(c.Turns*c.TurnTokens) * c.Token }

// toolTime is the time of an episode's tools.
func (c Config) toolTime() time.Duration { return time.Duration(c.Turns) * c.Tool }
