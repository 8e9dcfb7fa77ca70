package streams

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-rl/weir/streams/internal/seam"
)

// A broker refuses a message to a full stream after it has received it: a producer that sends a trajectory of 128 KB again and
// again sends some 256 KB/s for nothing, as long as the trainer does not purge. So after a refusal a large message is sent again
// only when the stream's state, some 1 KB, says that there is room for it.
const (
	// freeSpaceFrom is the least size, in bytes, for which the state is asked for: a smaller message is as cheap as the question.
	freeSpaceFrom = 8 << 10
	// freeSpaceAge is how long an answer holds for all publishers of a process.
	freeSpaceAge = 200 * time.Millisecond
	// freeSpacePause bounds the pause between two looks of a publisher, but for the jitter of half of it.
	freeSpacePause = time.Second
	// freeSpaceUnasked is how long a publisher goes by the state before it sends all the same: the broker decides in the end whether a
	// message fits.
	freeSpaceUnasked = 30 * time.Second
	// freeSpaceOverhead is how much the broker counts for a message besides its data, in bytes: subject, headers and framing. It is some
	// 400 at most.
	freeSpaceOverhead = 1 << 10
)

// errFull marks a refusal that holds until the stream has room.
var errFull = errors.New("the stream is full")

// freeSpace is a process's last view of the space that is left in TRAJECTORIES.
type freeSpace struct {
	// turn has room for the only publisher that looks; the fields below are its.
	turn chan struct{}
	at   time.Time
	// messages and bytes are left, less the share that the publishers of this process were given.
	messages, bytes int64
}

func newFreeSpace() *freeSpace { return &freeSpace{turn: make(chan struct{}, 1)} }

// reserveSpace sets space aside for a message of so many parts and bytes, and reports whether there was enough. look asks the broker how
// much is left.
func (v *freeSpace) reserveSpace(
	ctx context.Context, parts, bytes int, look func(context.Context) (messages, bytes int64, err error),
) (bool, error) {
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { <-v.turn }()
	if time.Since(v.at) > freeSpaceAge {
		var err error
		if v.messages, v.bytes, err = look(ctx); err != nil {
			return false, err
		}
		v.at = time.Now()
	}
	needed := int64(bytes) + int64(parts)*freeSpaceOverhead
	if v.messages < int64(parts) || v.bytes < needed {
		return false, nil
	}
	v.messages -= int64(parts)
	v.bytes -= needed
	return true, nil
}

// spaceLeft is the space left in a stream, in messages and in bytes; the greatest number where nothing bounds it.
func (r *Run) spaceLeft(stream string) func(context.Context) (messages, bytes int64, err error) {
	return func(ctx context.Context) (messages, bytes int64, err error) {
		s, err := r.js.Stream(ctx, stream)
		if err != nil {
			return 0, 0, err
		}
		info := s.CachedInfo()
		messages, bytes = math.MaxInt64, math.MaxInt64
		if bound := info.Config.MaxMsgs; bound > 0 {
			messages = bound - int64(info.State.Msgs)
		}
		if bound := info.Config.MaxBytes; bound > 0 {
			bytes = bound - int64(info.State.Bytes)
		}
		return messages, bytes, nil
	}
}

// waiter is a publisher of a message that waits while the stream is full.
type waiter struct {
	parts, bytes int
	// refusal is the broker's last refusal, nil before the first and where the message is small; sent is when it came.
	refusal error
	sent    time.Time
}

// checkRoom is nil where the message may be sent, and otherwise the last refusal: the stream has no room yet. Where the state cannot be
// read the message is sent.
func (w *waiter) checkRoom(ctx context.Context, v *freeSpace, look func(context.Context) (messages, bytes int64, err error)) error {
	if w.refusal == nil || time.Since(w.sent) > freeSpaceUnasked {
		return nil
	}
	if fits, err := v.reserveSpace(ctx, w.parts, w.bytes, look); fits || err != nil && ctx.Err() == nil {
		return nil
	}
	return w.refusal
}

// noteAttempt keeps the result of an attempt, and returns the error of it, with [errFull] where the next attempt is to look first.
func (w *waiter) noteAttempt(err error) error {
	w.refusal = nil
	if w.bytes < freeSpaceFrom || !seam.HasCode(err, codeStoreFailed) {
		return err
	}
	w.refusal, w.sent = fmt.Errorf("%w: %w", errFull, err), time.Now()
	return w.refusal
}
