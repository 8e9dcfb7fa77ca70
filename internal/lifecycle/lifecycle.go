// Package lifecycle turns signals into an orderly end: the first asks for a drain, the second stops at once.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// SignalError is the cause of the drain context: the signal that asked for it.
type SignalError struct{ Signal os.Signal }

// Error names the signal.
func (r *SignalError) Error() string { return fmt.Sprintf("received %s", r.Signal) }

// ExitCode is the exit status of a process that a signal ended before it was done, as shells have it: 128 and the signal's
// number, 130 for SIGINT.
func (r *SignalError) ExitCode() int {
	if s, ok := r.Signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return 1
}

// ErrStopped is the cause of the hard context when a second signal came.
var ErrStopped = errors.New("stopped by a second signal")

// onePress is how far apart two signals are at least that somebody means as two. A supervisor such as timeout(1) sends
// one to the process and at once the same to its group.
const onePress = 200 * time.Millisecond

// Signals returns two contexts. The first, drain, ends at SIGINT or SIGTERM: roles finish what they have.
// The second, hard, ends at a later signal: roles return at once. Call stop to give both up.
func Signals(parent context.Context) (drain, hard context.Context, stop func()) {
	hard, cancelHard := context.WithCancelCause(parent)
	drain, cancelDrain := context.WithCancelCause(hard)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		var first time.Time
		for {
			select {
			case s := <-signals:
				switch {
				case first.IsZero():
					first = time.Now()
					cancelDrain(&SignalError{s})
				case time.Since(first) >= onePress:
					cancelHard(ErrStopped)
					return
				}
			case <-done:
				return
			}
		}
	}()
	return drain, hard, func() {
		signal.Stop(signals)
		close(done)
		cancelHard(nil)
	}
}
