package streams

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// followPoll is how often a followed key is also read outright: a watch that broke without a word then costs a
// delay and no more.
const followPoll = 10 * time.Second

// follow calls fn with the newest value of a key, and with every newer one, skipping those that were overtaken
// while fn ran. It returns fn's error, or nil when ctx ends.
func (r *Run) follow(ctx context.Context, bucket, key string, fn func(value []byte, revision uint64) error) error {
	var last uint64
	see := func(e jetstream.KeyValueEntry) error {
		if e == nil || e.Revision() <= last || e.Operation() != jetstream.KeyValuePut {
			return nil
		}
		last = e.Revision()
		return fn(e.Value(), last)
	}
	for ctx.Err() == nil {
		err := r.followOnce(ctx, bucket, key, see)
		if stopped, ok := errors.AsType[*stoppedError](err); ok {
			return stopped.err
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// stoppedError carries the error of the function that follows, apart from those of following.
type stoppedError struct{ err error }

func (s *stoppedError) Error() string { return s.err.Error() }

// followOnce watches until the watch breaks.
func (r *Run) followOnce(ctx context.Context, bucket, key string, see func(jetstream.KeyValueEntry) error) error {
	var kv jetstream.KeyValue
	var watcher jetstream.KeyWatcher
	// The watch lives longer than the attempt to begin it.
	watching, stop := r.untilReconnected(ctx)
	defer stop()
	err := r.call(ctx, "follow "+key+" of "+bucket, bucket, func(ctx context.Context) error {
		var err error
		if kv, err = r.js.KeyValue(ctx, bucket); err != nil {
			return err
		}
		watcher, err = kv.Watch(watching, key)
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		_ = watcher.Stop() // fails only when the connection is gone, and the watch with it
		for range watcher.Updates() {
			// The watch waits for room to close.
		}
	}()
	poll := time.NewTicker(followPoll)
	defer poll.Stop()
	for {
		var newest jetstream.KeyValueEntry
		select {
		case <-watching.Done():
			return nil
		case e, open := <-watcher.Updates():
			if !open {
				return wait(ctx, backoffMin)
			}
			newest = newestOf(e, watcher.Updates())
		case <-poll.C:
			reading, cancel := context.WithTimeout(ctx, attemptTimeout)
			newest, _ = kv.Get(reading, key) // the next poll tries again
			cancel()
		}
		if err := see(newest); err != nil {
			return &stoppedError{err: err}
		}
	}
}

// untilReconnected is a context that ends when the connection comes back after a loss, or closes: what the broker
// was sending then has stopped, and is asked for again sooner than its silence would be noticed.
func (r *Run) untilReconnected(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	status := r.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, open := <-status; open {
			cancel()
		}
	}()
	return ctx, func() {
		cancel()
		r.nc.RemoveStatusListener(status)
		<-done
	}
}

// newestOf is the last of e and what waits behind it.
func newestOf(e jetstream.KeyValueEntry, updates <-chan jetstream.KeyValueEntry) jetstream.KeyValueEntry {
	for {
		select {
		case next := <-updates:
			if next == nil {
				return e
			}
			e = next
		default:
			return e
		}
	}
}
