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
// while fn ran. Revisions count from the beginning in a bucket that was made anew, and so does follow. It returns fn's
// error, or nil when ctx ends.
func (r *Run) follow(ctx context.Context, bucket, key string, fn func(value []byte, revision uint64) error) error {
	var created time.Time
	var last uint64
	see := func(of time.Time, e jetstream.KeyValueEntry) error {
		if !of.Equal(created) {
			created, last = of, 0
		}
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

// followOnce watches until the watch breaks, or the bucket is another.
func (r *Run) followOnce(ctx context.Context, bucket, key string, see func(created time.Time, e jetstream.KeyValueEntry) error) error {
	var kv jetstream.KeyValue
	var watcher jetstream.KeyWatcher
	var created time.Time
	// The watch lives longer than the attempt to begin it.
	watching, stop := r.untilReconnected(ctx)
	defer stop()
	err := r.callWaiting(watching, "follow "+key+" of "+bucket, bucket, func(ctx context.Context) (err error) {
		if created, err = r.created(ctx, "KV_"+bucket); err != nil {
			return err
		}
		if kv, err = r.js.KeyValue(ctx, bucket); err != nil {
			return err
		}
		watcher, err = kv.Watch(watching, key)
		return err
	})
	if err != nil {
		if watching.Err() != nil {
			return wait(ctx, backoffMin) // the connection came back while the watch began: begin it again
		}
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
			now, err := r.created(reading, "KV_"+bucket)
			if err == nil && now.Equal(created) {
				newest, err = kv.Get(reading, key)
			}
			cancel()
			switch {
			case err != nil:
				continue // the next poll tries again
			case !now.Equal(created):
				return nil
			}
		}
		if err := see(created, newest); err != nil {
			return &stoppedError{err: err}
		}
	}
}

// created is when a stream was made: one that is made anew under its name is another.
func (r *Run) created(ctx context.Context, stream string) (time.Time, error) {
	s, err := r.js.Stream(ctx, stream)
	if err != nil {
		return time.Time{}, err
	}
	return s.CachedInfo().Created, nil
}

// callWaiting is call for what follows a stream of the run: one that is not there is waited for. A broker that has lost its
// store has no stream of the run until somebody opens the run again.
func (r *Run) callWaiting(ctx context.Context, what, needle string, attempt func(context.Context) error) error {
	mayCome := func(err error) bool {
		return transient(err) || errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound)
	}
	return retry(ctx, r.log, what, mayCome, func(ctx context.Context) error {
		return r.conn.guard(ctx, needle, attempt)
	})
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
