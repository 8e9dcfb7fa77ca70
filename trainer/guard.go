package trainer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weir-rl/weir/streams"
)

// guard ends the trainer's context when another trainer takes the run, so that a waiting trainer notices it too. Until then the stream
// fails every write.
type guard struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

// watchSeat begins to guard; fence ends the trainer's context.
func watchSeat(ctx context.Context, s Stream, fence context.CancelCauseFunc, log *slog.Logger) *guard {
	g := &guard{ended: make(chan struct{})}
	ctx, g.cancel = context.WithCancel(ctx)
	go func() {
		defer close(g.ended)
		retryUntilDone(ctx, func() error {
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

// fencedError returns err, or the cause of the end of ctx where that is another trainer's taking the run.
func fencedError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, streams.ErrFenced) {
		return cause
	}
	return err
}
