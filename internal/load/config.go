package main

import (
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// config says what the load is.
type config struct {
	Producers, Slots          int
	Tokens, Turns, TurnTokens int
	Token, Tool               time.Duration
	Engines, EngineSlots      int
	For, Lease                time.Duration
	Sync                      bool
}

// defaults are an agent of four turns with a slow tool.
func defaults() config {
	return config{
		Producers: 16, Slots: 4, Tokens: 2000, Turns: 4, TurnTokens: 64, Token: 10 * time.Millisecond, Tool: 500 * time.Millisecond,
		Engines: 1, EngineSlots: 64, For: 20 * time.Second, Lease: 6 * time.Second, Sync: true,
	}
}

// Validate reports every fault.
func (c config) Validate() error {
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

// sampling is what the tokens of an episode take where no engine is full, tools what its tools take.
func (c config) sampling() time.Duration { return time.Duration(c.Turns*c.TurnTokens) * c.Token }
func (c config) tools() time.Duration    { return time.Duration(c.Turns) * c.Tool }
