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

// follower learns of a drain while the trainer waits.
type follower struct {
	drain  context.CancelCauseFunc
	waits  context.Context //nolint:containedctx // it is what follower gives out: it ends with the drain
	cancel context.CancelFunc
	ended  chan struct{}
}

// follow watches the control key until stop.
func follow(ctx context.Context, s Stream, log *slog.Logger) *follower {
	f := &follower{ended: make(chan struct{})}
	f.waits, f.drain = context.WithCancelCause(ctx)
	watch, cancel := context.WithCancel(ctx)
	f.cancel = cancel
	go func() {
		defer close(f.ended)
		keepOn(watch, func() error {
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

// Waits before what was followed is followed again.
const (
	firstAgain = 100 * time.Millisecond
	lastAgain  = 10 * time.Second
)

// keepOn repeats a call until it returns nil or ctx ends, with a wait after each error, of which warn is called first.
func keepOn(ctx context.Context, call func() error, warn func(err error, wait time.Duration)) {
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

// context ends with errDrained as its cause when the run is drained. Its parent is the one given to follow.
func (f *follower) context() context.Context { return f.waits }

func (f *follower) stop() {
	f.cancel()
	<-f.ended
	f.drain(nil)
}
