package streams

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
)

// Passed is the sequence up to which every message has been returned, or refused and filed: a reader that stores the returned messages
// elsewhere can purge up to it. Call it from Next's goroutine.
func (f *Feed) Passed() uint64 {
	passed := f.passed
	if first := f.book.firstPartial(); first != 0 {
		passed = min(passed, first-1)
	}
	if low := f.filing.lowestSequence(); low != 0 {
		passed = min(passed, low-1)
	}
	return passed
}

// Behind is whether the stream holds a message that Next has not read yet. Call it from Next's goroutine.
func (f *Feed) Behind(ctx context.Context) (bool, error) {
	name := f.run.names.trajectories
	behind := false
	err := f.run.callBroker(ctx, "look whether "+name+" holds more", name, func(ctx context.Context) error {
		s, err := f.run.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		state := s.CachedInfo().State
		next := max(f.Passed()+1, state.FirstSeq)
		if behind = next <= state.LastSeq; !behind {
			return nil
		}
		// The last sequence of a stream stays when the message there is deleted.
		info, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
		if err != nil {
			return err
		}
		deleted := uint64(0)
		for _, sequence := range info.State.Deleted {
			if sequence >= next {
				deleted++
			}
		}
		behind = next+deleted <= info.State.LastSeq
		return nil
	})
	return behind, err
}

// Refused counts the messages that the feed has refused by itself since the last call of Refused, by reason. Call it from Next's
// goroutine.
func (f *Feed) Refused() map[schemas.Reason]int {
	refused := f.refused
	f.refused = map[schemas.Reason]int{}
	return refused
}

// RefusedBy counts the messages that were refused, by the feed itself or by Reject and RejectSoon, since the last call of RefusedBy: by
// the producer that a message's subject names, and under [OtherProducers] beyond the first 32 producers. Call it from Next's goroutine.
func (f *Feed) RefusedBy() map[string]int { return f.refusedBy.takeCounts() }

// SetMaxPending changes the bound on the messages returned and not acked. Call it from Next's goroutine.
func (f *Feed) SetMaxPending(ctx context.Context, n int) error {
	options := f.options
	options.MaxPending = n
	if err := options.validateOptions(); err != nil {
		return fmt.Errorf("configure feed: %w", err)
	}
	f.options = options
	return f.openConsumer(ctx)
}

// Fullness is how full the stream is, by messages or by bytes, or how near this reader is to MaxPending, whichever is the largest: at
// 1 no more messages can come.
func (f *Feed) Fullness(ctx context.Context) (float64, error) {
	full, err := f.StreamFullness(ctx)
	return max(full, float64(f.book.pendingCount())/float64(f.options.MaxPending)), err
}

// StreamFullness is how full the stream is, by messages or by bytes, whichever is larger, from 0 to 1.
func (f *Feed) StreamFullness(ctx context.Context) (full float64, err error) {
	name := f.run.names.trajectories
	err = f.run.callBroker(ctx, "read how full "+name+" is", name, func(ctx context.Context) error {
		s, err := f.run.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		have, limits := s.CachedInfo().State, s.CachedInfo().Config
		full = 0
		if limits.MaxMsgs > 0 {
			full = max(full, float64(have.Msgs)/float64(limits.MaxMsgs))
		}
		if limits.MaxBytes > 0 {
			full = max(full, float64(have.Bytes)/float64(limits.MaxBytes))
		}
		return nil
	})
	return full, err
}
