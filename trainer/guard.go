package trainer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weir-rl/weir/streams"
)

// guard ends the trainer's context when another trainer takes the run, so that one that waits learns of it too. That
// nothing is done to the run in between is the stream's affair.
type guard struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

// watch begins to guard; fence ends the trainer's context.
func watch(ctx context.Context, s Stream, fence context.CancelCauseFunc, log *slog.Logger) *guard {
	g := &guard{ended: make(chan struct{})}
	ctx, g.cancel = context.WithCancel(ctx)
	go func() {
		defer close(g.ended)
		keepOn(ctx, func() error {
			err := s.Watch(ctx)
			if errors.Is(err, streams.ErrFenced) {
				fence(err)
				return nil
			}
			return err
		}, func(err error, wait time.Duration) {
			log.Warn("the watch for another trainer that takes the run has ended: until it is made again, only the next write finds out",
				"again_in", wait, "err", err)
		})
	}()
	return g
}

func (g *guard) stop() {
	g.cancel()
	<-g.ended
}

// fenced is err, or that another trainer has taken the run where that is why ctx ended.
func fenced(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, streams.ErrFenced) {
		return cause
	}
	return err
}
