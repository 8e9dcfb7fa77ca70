package library

import (
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/tasks/facts"
)

// Config says how the countries are divided and how demonstrations are made.
type Config struct {
	facts.Division `koanf:",squash"`
	// Demo says how the demonstrations of the cold start are made.
	Demo DemoConfig `koanf:"demo"`
}

// DefaultConfig holds out 30 countries to choose by and 49 to report on.
func DefaultConfig() Config {
	return Config{Division: facts.DefaultDivision(), Demo: DefaultDemoConfig()}
}

// Validate reports every fault.
func (c Config) Validate() error {
	// Fewer than 20 countries border each other too seldom for questions of four hops.
	return check.All(c.Faults(20, 120, 70), check.Section("demo", c.Demo.Validate()))
}

// DemoConfig says how the demonstrations of the cold start are made.
type DemoConfig struct {
	// Seed makes other demonstrations of the same kind.
	Seed uint64 `koanf:"seed"`
	// The first OneHopFirst demonstrations are one-hop: copying a name is learned there. From then on the four kinds are equally frequent.
	OneHopFirst uint64 `koanf:"one_hop_first"`
	// UsualBooks is how many of the eight books a fact may be kept in, the real world's among them; each made-up world draws a place among
	// them. More leave more to be found out: with 1 the demonstrations tell where everything is.
	UsualBooks int `koanf:"usual_books"`
}

// DefaultDemoConfig is five usual books for each fact.
func DefaultDemoConfig() DemoConfig {
	return DemoConfig{Seed: 1, OneHopFirst: 6400, UsualBooks: 5}
}

// Validate reports every fault.
func (c DemoConfig) Validate() error {
	return check.Between("usual_books", c.UsualBooks, 1, len(books))
}
