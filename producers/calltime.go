package producers

import (
	"context"
	"errors"
	"sync"
	"time"
)

// callTime is what is left of the time limit of a call. It stands still within [HoldCall].
type callTime struct {
	outer *callTime // of a call that this call is made in
	whole time.Duration

	mu    sync.Mutex
	waits int
	limit agentTime
}

// callTimeKey is the key of a callTime in the contexts of a call.
type callTimeKey struct{}

// LimitCall returns a context which ends with a cause after a limit, > 0, whose time stands still while [HoldCall] has it so: a wait
// for other calls to end is no part of a call's time. The caller calls cancel when the call has ended.
func LimitCall(ctx context.Context, limit time.Duration, cause error) (limited context.Context, cancel context.CancelFunc) {
	ended, end := context.WithCancelCause(ctx)
	passed := &callPassedError{cause}
	c := &callTime{whole: limit, limit: agentTime{left: limit, since: time.Now(), timer: time.AfterFunc(limit, func() { end(passed) })}}
	c.outer, _ = ctx.Value(callTimeKey{}).(*callTime)
	return callContext{ended, c, passed}, func() {
		c.limit.timer.Stop()
		end(nil)
	}
}

// CallLimit is the time limit, by [LimitCall], of the call that ctx is of; 0 is none.
func CallLimit(ctx context.Context) time.Duration {
	if c, ok := ctx.Value(callTimeKey{}).(*callTime); ok {
		return c.whole
	}
	return 0
}

// callContext is the context of a call.
type callContext struct {
	context.Context //nolint:containedctx // it is that context, with another deadline
	time            *callTime
	passed          error // its cause where the limit has passed
}

// callPassedError is the cause of a call's end by its limit.
type callPassedError struct{ error }

func (l *callPassedError) Unwrap() error { return l.error }

// Err is DeadlineExceeded where the call's time has passed.
func (c callContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), c.passed) {
		return context.DeadlineExceeded
	}
	return err
}

// Deadline is when the call's time passes; it is not known while the time stands still.
func (c callContext) Deadline() (deadline time.Time, known bool) {
	deadline, known = c.Context.Deadline()
	c.time.mu.Lock()
	defer c.time.mu.Unlock()
	if c.time.waits > 0 {
		return deadline, known
	}
	if passes := c.time.limit.since.Add(c.time.limit.left); !known || passes.Before(deadline) {
		return passes, true
	}
	return deadline, known
}

// Value implements context.Context.
func (c callContext) Value(key any) any {
	if key == (callTimeKey{}) {
		return c.time
	}
	return c.Context.Value(key)
}

// countWait counts a wait that begins, or ends, in this call and in the calls that it is made in; nil is no call.
func (c *callTime) countWait(by int) {
	if c == nil {
		return
	}
	c.outer.countWait(by)
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.waits > 0
	c.waits += by
	if still := c.waits > 0; still != before {
		c.limit.holdTime(still, time.Now())
	}
}
