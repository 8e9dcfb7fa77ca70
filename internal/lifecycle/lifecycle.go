// Package lifecycle turns signals into an orderly end: the first asks for a drain, the second stops at once.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// ErrStopped is the cause of the hard context when a second signal came.
var ErrStopped = errors.New("stopped by a second signal")

// Signals returns two contexts. The first, drain, ends at SIGINT or SIGTERM: roles finish what they have.
// The second, hard, ends at the signal after that: roles return at once. Call stop to give both up.
func Signals(parent context.Context) (drain, hard context.Context, stop func()) {
	hard, cancelHard := context.WithCancelCause(parent)
	drain, cancelDrain := context.WithCancelCause(hard)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case s := <-signals:
				if n > 0 {
					cancelHard(ErrStopped)
					return
				}
				cancelDrain(fmt.Errorf("received %s", s))
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
