package assembly

import (
	"context"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

const (
	// signEvery is how often a worker tells that it is still there. A thousand workers then store 33 events a second.
	signEvery = 30 * time.Second
	// signAgain is when it tries once more after the broker did not take its word.
	signAgain = 5 * time.Second
)

// keepPresence tells the run that a worker has come, every half minute that it is still there, and, when the returned function is called,
// that it leaves. So a viewer can distinguish a worker that was killed, or froze, from a worker that was stopped in order. Nothing depends
// on it.
func (p *process) keepPresence(ctx context.Context, run *streams.Run, role, worker string) (leave func()) {
	return keepPresent(ctx, func(ctx context.Context, kind schemas.EventType) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		err := run.Emit(ctx, &schemas.Event{
			Run: run.Name(), Type: kind, At: time.Now().UTC(), Role: role, Worker: worker, Metrics: map[string]float64{schemas.MetricAgain: signEvery.Seconds()},
		})
		if err != nil {
			p.log.Debug("emit an event", "type", kind, "err", err)
		}
		return err
	})
}

// keepPresent tells of a worker until the returned function is called. The end of ctx does not end it: a worker that drains is still there.
func keepPresent(ctx context.Context, tell func(context.Context, schemas.EventType) error) (leave func()) {
	ctx = context.WithoutCancel(ctx)
	after := func(err error) time.Duration {
		if err != nil {
			return signAgain
		}
		return signEvery
	}
	again := time.NewTimer(after(tell(ctx, schemas.EventWorkerJoined)))
	signing, cancel := context.WithCancel(ctx)
	var signs sync.WaitGroup
	signs.Go(func() {
		for {
			select {
			case <-signing.Done():
				return
			case <-again.C:
				again.Reset(after(tell(signing, schemas.EventWorkerHere)))
			}
		}
	})
	return func() {
		again.Stop()
		cancel()
		signs.Wait()
		_ = tell(ctx, schemas.EventWorkerLeft) // the broker may be gone: nothing depends on it
	}
}
