package trainer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// errDrained ends the wait for a batch when an operator drains the run.
var errDrained = errors.New("the run is draining")

// errUsedUp is returned in place of a batch when the run's prompts are used up: see Finite.
var errUsedUp = errors.New("the prompts are used up")

// follower notices a drain while the trainer waits.
type follower struct {
	drain  context.CancelCauseFunc
	waits  context.Context //nolint:containedctx // follower gives it out: it ends with the drain
	cancel context.CancelFunc
	ended  chan struct{}
}

// followControl watches the control key until stop.
func followControl(ctx context.Context, s Stream, log *slog.Logger) *follower {
	f := &follower{ended: make(chan struct{})}
	f.waits, f.drain = context.WithCancelCause(ctx)
	watch, cancel := context.WithCancel(ctx)
	f.cancel = cancel
	go func() {
		defer close(f.ended)
		retryUntilDone(watch, func() error {
			return s.FollowControl(watch, func(c *schemas.Control) {
				if c.Draining {
					f.drain(errDrained)
				}
			})
		}, func(err error, wait time.Duration) {
			log.Warn("control is not followed: draining goes unnoticed until it is again", "again_in", wait, "err", err)
		})
	}()
	return f
}

// Waits before a lost watch is made again.
const (
	firstAgain = 100 * time.Millisecond
	lastAgain  = 10 * time.Second
)

// retryUntilDone repeats a call until it returns nil or ctx ends. After each error it calls warn, then waits.
func retryUntilDone(ctx context.Context, call func() error, warn func(err error, wait time.Duration)) {
	for wait := firstAgain; ; wait = min(2*wait, lastAgain) {
		err := call()
		if err == nil || ctx.Err() != nil {
			return
		}
		warn(err, wait)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// batchContext returns a context that ends with errDrained as its cause when the run is drained. Its parent is the context given to
// followControl.
func (f *follower) batchContext() context.Context { return f.waits }

func (f *follower) stop() {
	f.cancel()
	<-f.ended
	f.drain(nil)
}
