package config

import (
	"fmt"
	"regexp"
	"strings"
)

// InvalidError is returned when a configured run cannot be made. It has every fault that was found: in the configuration itself, or in the
// things that it names, such as a task's data.
//
//	if invalid, ok := errors.AsType[*config.InvalidError](err); ok {
//		for _, f := range invalid.Faults {
//			fmt.Println(f.Key, f.Value, f.Problem)
//		}
//	}
type InvalidError struct {
	// Faults is not empty.
	Faults []Fault

	err error
}

// Fault is a fault of a configuration.
type Fault struct {
	// Key is the full path of the key, or of the section; "" where the fault is of a whole file, or of a thing that the configuration
	// names.
	Key string
	// Value is the key's value as text, "" where it is not known; Origin is the file, variable or flag that it came from,
	// "" for a default.
	Value, Origin string
	// Problem is why the value is not accepted.
	Problem string
}

// Error has a line for each fault.
func (e *InvalidError) Error() string { return e.err.Error() }

// Unwrap returns the joined error.
func (e *InvalidError) Unwrap() error { return e.err }

// Invalid makes err, which may join several errors, an *InvalidError. It is nil where err is nil, and err itself where that is an
// *InvalidError already.
func Invalid(err error) error {
	if err == nil {
		return nil
	}
	if invalid, ok := err.(*InvalidError); ok { //nolint:errorlint // what wraps one may have more to say
		return invalid
	}
	return &InvalidError{Faults: listFaults(err), err: err}
}

// listFaults returns the errors joined in err, however deep, as faults.
func listFaults(err error) (out []Fault) {
	for {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				out = append(out, listFaults(e)...)
			}
			return out
		}
		if one, ok := err.(*ValueError); ok { //nolint:errorlint // what wraps one has more to say
			value, problem := one.Value, one.Problem
			if value == "" {
				value, problem = cutValue(one.Problem)
			}
			return []Fault{{Key: one.Key, Value: value, Origin: one.Origin, Problem: problem}}
		}
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || inner.Unwrap() == nil || !strings.HasSuffix(err.Error(), "\n"+inner.Unwrap().Error()) {
			return []Fault{parseFault(err.Error())}
		}
		err = inner.Unwrap() // a headline stands above the faults
	}
}

// keyAtHead is a key, or a section, at the head of a fault's text.
var keyAtHead = regexp.MustCompile(`^([a-z][a-z0-9_]*(?:\.[A-Za-z0-9_-]+)+|[a-z][a-z0-9_]*): `)

// parseFault reads a fault that begins with its key, as package check writes it.
func parseFault(text string) Fault {
	head := keyAtHead.FindString(text)
	if head == "" {
		return Fault{Problem: text}
	}
	value, problem := cutValue(text[len(head):])
	return Fault{Key: strings.TrimSuffix(head, ": "), Value: value, Problem: problem}
}

// cutValue takes the value off the head of a problem: what stands in quotes, or one word, before a colon. The value of an unknown name
// stands behind the word unknown.
func cutValue(text string) (value, problem string) {
	if name, ok := strings.CutPrefix(text, "unknown "); ok {
		if n, err := fmt.Sscanf(name, "%q", &value); err == nil && n == 1 {
			return value, text
		}
	}
	head, rest, found := strings.Cut(text, ": ")
	if !found {
		return "", text
	}
	if n, err := fmt.Sscanf(head, "%q", &value); err == nil && n == 1 {
		return value, rest
	}
	if strings.ContainsAny(head, " \t") {
		return "", text
	}
	return head, rest
}
