// Package check has the words in which every Validate says what is wrong with a setting: one fault an error, which begins
// with the key. It imports nothing of Weir, so that every room may use it.
//
//	func (c Config) Validate() error {
//		return check.All(
//			check.Positive("steps", c.Steps),
//			check.OneOf("schedule", c.Schedule, "constant", "linear"),
//			check.That(c.Depth <= c.Eta, "depth", "%d: must not exceed eta (%d)", c.Depth, c.Eta),
//			check.Section("optimizer", c.Optimizer.Validate()),
//		)
//	}
package check

import (
	"errors"
	"fmt"
	"math"
)

// Number is what a bound can be set to.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// All joins every fault in errs, in order, to one flat list: what errors.Join joined before becomes faults side by side. It
// is nil when there is none.
func All(errs ...error) error {
	var flat []error
	for _, err := range errs {
		flat = appendFaults(flat, err)
	}
	return errors.Join(flat...)
}

// Section puts the name of a section and a dot before each fault in err. "" adds nothing.
func Section(name string, err error) error {
	faults := appendFaults(nil, err)
	if name != "" {
		for i, fault := range faults {
			faults[i] = fmt.Errorf("%s.%w", name, fault)
		}
	}
	return errors.Join(faults...)
}

// appendFaults adds what is joined in err, however deep, one by one.
func appendFaults(to []error, err error) []error {
	if err == nil {
		return to
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return append(to, err)
	}
	for _, e := range joined.Unwrap() {
		to = appendFaults(to, e)
	}
	return to
}

// That is a fault of the key unless ok. The format says the value first, then what it must be.
func That(ok bool, key, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...))
}

// Finite is a fault of NaN and the infinities.
func Finite[N Number](key string, v N) error {
	return That(finite(v), key, "%v: must be finite", v)
}

// Positive is a fault of 0, of what is below, and of what is not finite.
func Positive[N Number](key string, v N) error {
	return bounded(key, v, v > 0, "positive")
}

// NotNegative is a fault of what is below 0 or not finite.
func NotNegative[N Number](key string, v N) error {
	if finite(v) && !(v >= 0) {
		return That(false, key, "%v: must not be negative", v)
	}
	return Finite(key, v)
}

// AtLeast is a fault of what is below least or not finite.
func AtLeast[N Number](key string, v, least N) error {
	return bounded(key, v, v >= least, fmt.Sprintf("at least %v", least))
}

// Between is a fault of what is below low or above high.
func Between[N Number](key string, v, low, high N) error {
	return That(v >= low && v <= high, key, "%v: must be between %v and %v", v, low, high)
}

// PositiveOr is Positive of a setting that one value, such as -1, turns off.
func PositiveOr[N Number](off N, key string, v N) error {
	return That(v == off || v > 0, key, "%v: must be positive, or %v for off", v, off)
}

// ShareOr is a fault of what is not above 0 and at most 1, where one value, such as -1, turns the setting off.
func ShareOr[N Number](off N, key string, v N) error {
	return That(v == off || v > 0 && v <= 1, key, "%v: must be above 0 and at most 1, or %v for off", v, off)
}

// Given is a fault of an empty text; what says what it is to be.
func Given(key, v, what string) error {
	return That(v != "", key, "empty: %s", what)
}

// Prefixed puts a section's name before what its configuration says of a key, as "eval.every is 0: ...", which begins with a key of the section; "" stays.
func Prefixed(section, why string) string {
	if why == "" {
		return ""
	}
	return section + "." + why
}

func bounded[N Number](key string, v N, ok bool, want string) error {
	if !finite(v) {
		return Finite(key, v)
	}
	return That(ok, key, "%v: must be %s", v, want)
}

func finite[N Number](v N) bool {
	x := float64(v)
	return !math.IsNaN(x) && !math.IsInf(x, 0)
}
