package facts

import "github.com/weir-rl/weir/internal/check"

// Division says how the countries are divided among the splits.
type Division struct {
	// SplitSeed divides the countries. Another seed is another experiment: a policy that saw a division has no held-out test under another
	// division. Defaults to 3.
	SplitSeed uint64 `koanf:"split_seed"`
	// ValidationCountries and TestCountries are held out; the rest is for training. Default to 30 and 49.
	ValidationCountries int `koanf:"validation_countries"`
	TestCountries       int `koanf:"test_countries"`
}

// DefaultDivision holds out 30 countries to choose by and 49 to report on.
func DefaultDivision() Division {
	return Division{SplitSeed: 3, ValidationCountries: 30, TestCountries: 49}
}

// Faults are the faults of a division that needs a least number of countries in each held-out split and leaves some to train on: at most so
// many are held out.
func (d Division) Faults(least, most, left int) error {
	sum := d.ValidationCountries + d.TestCountries
	return check.All(
		check.AtLeast("validation_countries", d.ValidationCountries, least),
		check.AtLeast("test_countries", d.TestCountries, least),
		check.That(sum <= most, "validation_countries + test_countries", "%d: must leave some %d to train on: at most %d", sum, left, most),
	)
}

// Lasting are the keys without whose values a run's held-out questions are not held out.
func (Division) Lasting() []string {
	return []string{"split_seed", "validation_countries", "test_countries"}
}
