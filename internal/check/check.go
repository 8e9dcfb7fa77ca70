// Package check has the checks of every Validate, with the same wording of a setting's fault everywhere: an error for each fault, which
// begins with the key. It imports nothing of Weir, so that every room may use it.
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

// Number is a type that can have bounds.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// All joins every fault in errs, in order, to a flat list: errors that errors.Join joined before become faults side by side. It is nil when
// there is no fault.
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

// appendFaults appends each error that is joined in err, however deep.
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

// That returns a fault of the key unless ok. The format gives the value first, then the condition.
func That(ok bool, key, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...))
}

// Finite returns a fault for NaN and the infinities.
func Finite[N Number](key string, v N) error {
	return That(isFinite(v), key, "%v: must be finite", v)
}

// Positive returns a fault unless v is finite and above 0.
func Positive[N Number](key string, v N) error {
	return checkBounded(key, v, v > 0, "positive")
}

// NotNegative returns a fault unless v is finite and at least 0.
func NotNegative[N Number](key string, v N) error {
	if isFinite(v) && !(v >= 0) {
		return That(false, key, "%v: must not be negative", v)
	}
	return Finite(key, v)
}

// AtLeast returns a fault unless v is finite and at least least.
func AtLeast[N Number](key string, v, least N) error {
	return checkBounded(key, v, v >= least, fmt.Sprintf("at least %v", least))
}

// Between returns a fault unless v is between low and high, inclusive.
func Between[N Number](key string, v, low, high N) error {
	return That(v >= low && v <= high, key, "%v: must be between %v and %v", v, low, high)
}

// Given returns a fault for an empty text; what describes the text that is needed.
func Given(key, v, what string) error {
	return That(v != "", key, "empty: %s", what)
}

// Prefixed puts a section's name before a reason that begins with a key of the section, as in "eval.every is 0: ..."; "" stays.
func Prefixed(section, why string) string {
	if why == "" {
		return ""
	}
	return section + "." + why
}

func checkBounded[N Number](key string, v N, ok bool, want string) error {
	if !isFinite(v) {
		return Finite(key, v)
	}
	return That(ok, key, "%v: must be %s", v, want)
}

func isFinite[N Number](v N) bool {
	x := float64(v)
	return !math.IsNaN(x) && !math.IsInf(x, 0)
}
