package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/streams/internal/seam"
)

// The bounds on the time of an attempt and on the pause between two.
const (
	attemptTimeout = seam.CallTimeout
	backoffMin     = 10 * time.Millisecond
	quietAttempts  = 8
	backoffMax     = seam.LongestPause
)

// JetStream error codes that the client library does not name.
const (
	codeStoreFailed       = seam.CodeStoreFailed // full, or the disk is
	codeNoStorage         = 10047                // the broker cannot set the bytes of a new stream aside
	codeNoSequence        = 10043                // a message to delete is gone
	codeInvalidConfig     = 10052                // a stream cannot be changed so
	codeBatchDuplicate    = 10201                // the message id of a batch is stored already
	codeBatchIncomplete   = 10176                // the batch was cut off
	codeDuplicateInFlight = 10158                // the same message id is being stored
)

// retryCall is retryWithin with the usual bound on an attempt.
func retryCall(ctx context.Context, log *slog.Logger, what string, transient func(error) bool, attempt func(context.Context) error) error {
	return retryWithin(ctx, log, what, attemptTimeout, transient, attempt)
}

// retryWithin makes attempts, each bounded by timeout, with a jittered pause between, until an attempt succeeds, an attempt fails for
// good, or ctx ends; then the error names the last failure. It logs a warning at every doubling of the number of failures from
// quietAttempts on: a few failures are usual while a stream is full or the broker restarts.
func retryWithin(
	ctx context.Context, log *slog.Logger, what string, timeout time.Duration, transient func(error) bool, attempt func(context.Context) error,
) error {
	delay := backoffMin
	var last error
	ended := func() error {
		if last == nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		return fmt.Errorf("%s: %w (last attempt: %w)", what, context.Cause(ctx), last)
	}
	for n := 1; ; n++ {
		if ctx.Err() != nil {
			return ended()
		}
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			return attempt(ctx)
		}()
		if err == nil {
			if n >= quietAttempts {
				log.Info("succeeded after retries", "what", what, "attempts", n)
			}
			return nil
		}
		if ctx.Err() != nil {
			last = cmp.Or(last, err) // the failure before says more than that ctx ended
			return ended()
		}
		last = err
		if !transient(err) {
			return fmt.Errorf("%s: %w", what, err)
		}
		if n >= quietAttempts && n&(n-1) == 0 {
			log.Warn("broker did not take it; trying again", "what", what, "attempts", n, "err", err)
		}
		if err := seam.Wait(ctx, delay/2+rand.N(delay)); err != nil {
			continue
		}
		longest := backoffMax
		if errors.Is(err, errFull) {
			longest = freeSpacePause
		}
		delay = min(2*delay, longest)
	}
}

// IsTransient says whether a later attempt at the same call may succeed: the broker is away, restarting, full,
// overrun or between leaders.
func IsTransient(err error) bool {
	if errors.Is(err, ErrDenied) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrMaxPayload) {
		return false
	}
	if code := seam.Code(err); code != nil {
		switch int(code.ErrorCode) {
		case codeBatchIncomplete, codeDuplicateInFlight:
			return true
		case codeNoStorage:
			return false
		}
		return code.Code == 408 || code.Code == 429 || code.Code >= 500
	}
	for _, t := range []error{
		nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrConnectionReconnecting,
		nats.ErrReconnectBufExceeded, nats.ErrStaleConnection, jetstream.ErrNoStreamResponse,
		jetstream.ErrJetStreamNotEnabled, jetstream.ErrNoHeartbeat, jetstream.ErrServerShutdown, jetstream.ErrMsgDeleteUnsuccessful,
		context.DeadlineExceeded, errInterrupted,
	} {
		if errors.Is(err, t) {
			return true
		}
	}
	// A write that failed at the end of the connection before the client noticed the end.
	_, broken := errors.AsType[*net.OpError](err)
	return broken
}
