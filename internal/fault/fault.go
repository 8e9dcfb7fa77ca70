// Package fault has the error of a caller who asked for something that cannot be: a command line, a page or a program that
// embeds a run. The command line ends with its status of wrong usage where it meets one; a fault of the configuration is a
// config.InvalidError.
//
//	return fault.Usagef("--step %d: the run has the steps %v", step, steps)
package fault

import "fmt"

// UsageError is returned when an argument names nothing that there is, or arguments exclude each other. Nothing was begun.
type UsageError struct {
	// Err names the argument, its value, and what is possible.
	Err error
}

// Usage makes err a fault of the caller's.
func Usage(err error) error { return &UsageError{err} }

// Usagef is Usage of a new error, which is formatted as fmt.Errorf does.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// Error is that of the error inside.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap is the error inside.
func (e *UsageError) Unwrap() error { return e.Err }
