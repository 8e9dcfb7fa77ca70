package trainer

import (
	"fmt"
	"math"
)

// faults gathers what is wrong, each naming its key.
type faults []error

func (f *faults) check(key string, ok bool, problem string) {
	if !ok {
		*f = append(*f, fmt.Errorf("%s: %s", key, problem))
	}
}

func (f *faults) positive(key string, v int64) {
	f.check(key, v > 0, fmt.Sprintf("%d: must be positive", v))
}

func (f *faults) notNegative(key string, v int64) {
	f.check(key, v >= 0, fmt.Sprintf("%d: must not be negative", v))
}

// section puts a section's name before each of its faults, however they are joined; "" is no name.
func (f *faults) section(name string, err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			f.section(name, e)
		}
		return
	}
	if name != "" {
		err = fmt.Errorf("%s.%w", name, err)
	}
	*f = append(*f, err)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
