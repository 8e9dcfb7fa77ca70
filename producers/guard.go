package producers

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// PanicError is a panic of a part that is not Weir's own, as an error.
type PanicError struct {
	Value any
	Stack []byte
}

func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Guard calls fn and returns a panic of it as a [PanicError]. A panic in a goroutine that fn started itself is beyond it: that ends the
// process, as Go has it.
func Guard(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn()
}

// brokenError is a panic that ended an episode, with the part whose it was. Another try, with the same seed, would come to it again.
type brokenError struct {
	part string
	*PanicError
}

func (b *brokenError) Error() string { return fmt.Sprintf("%s panicked: %v", b.part, b.Value) }
func (b *brokenError) Unwrap() error { return b.PanicError }

// guardPart is Guard for a part that an episode cannot go on without, also where fn guarded its own goroutines. A panic that has its part's
// name keeps it, and a panic that only made a tool unavailable, as while a session opens, stays an unavailable tool.
func guardPart(part string, fn func() error) error {
	err := Guard(fn)
	if panicked, ok := errors.AsType[*PanicError](err); ok && findPanic(err) == nil && !errors.Is(err, ErrUnavailable) {
		return &brokenError{part, panicked}
	}
	return err
}

// findPanic returns the panic that ended an episode, nil where none did.
func findPanic(err error) *brokenError {
	b, _ := errors.AsType[*brokenError](err)
	return b
}

// logBroken writes down where a part panicked.
func logBroken(log *slog.Logger, err error) {
	if b := findPanic(err); b != nil {
		log.Error("a part of the task panicked: mend it, the producer goes on", "part", b.part, "panic", fmt.Sprint(b.Value), "stack", string(b.Stack))
	}
}
