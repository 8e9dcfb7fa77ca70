package library

import "github.com/weir-rl/weir/internal/check"

// Config says how the countries are divided and how demonstrations are made.
type Config struct {
	// SplitSeed divides the countries. Another seed is another experiment: a policy that saw one division
	// has no held-out test under another.
	SplitSeed uint64 `koanf:"split_seed"`
	// ValidationCountries and TestCountries are held out; the rest, of some 190, is for training.
	ValidationCountries int `koanf:"validation_countries"`
	TestCountries       int `koanf:"test_countries"`
	// Demo says how the demonstrations of the cold start are made.
	Demo DemoConfig `koanf:"demo"`
}

// DefaultConfig holds out 30 countries to choose by and 49 to report on.
func DefaultConfig() Config {
	return Config{SplitSeed: 3, ValidationCountries: 30, TestCountries: 49, Demo: DefaultDemoConfig()}
}

// Validate reports every fault.
func (c Config) Validate() error {
	sum := c.ValidationCountries + c.TestCountries
	return check.All(
		// Fewer countries border each other too seldom for questions of four hops.
		check.AtLeast("validation_countries", c.ValidationCountries, 20),
		check.AtLeast("test_countries", c.TestCountries, 20),
		check.That(sum <= 120, "validation_countries + test_countries", "%d: must leave some 70 to train on: at most 120", sum),
		check.Section("demo", c.Demo.Validate()),
	)
}

// DemoConfig says how the demonstrations of the cold start are made.
type DemoConfig struct {
	// Seed makes other demonstrations of the same kind.
	Seed uint64 `koanf:"seed"`
	// OneHopFirst demonstrations at the start are one-hop only: copying a name is learned there. From then on
	// the four kinds are equally frequent.
	OneHopFirst uint64 `koanf:"one_hop_first"`
	// UsualBooks is how many of the eight books a fact may be kept in, the real world's among them; each made-up world
	// draws one of them. More leave more to be found out: with 1 the demonstrations tell where everything is.
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
