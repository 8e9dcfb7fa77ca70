package streams

import (
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// FeedOptions say how TRAJECTORIES are read.
type FeedOptions struct {
	// Durable names the reader at the broker; "" is "trainer", and "trainer-<epoch>" for the holder of a seat.
	Durable string
	// From makes the feed begin after a position, whatever was acked before. nil goes on after the acked messages.
	From *Position
	// Known is the last message that the reader knows to have been in the stream of From. It may be far above From: the reader
	// settled messages out of order, or holds some itself. Without From it is not used.
	Known Mark
	// MaxPending bounds the messages returned and not acked: Next waits beyond it. It must cover the messages that are held
	// between two checkpoints. A trajectory in parts counts once for each part. 0 is 1024.
	MaxPending int
	// AckWait is how long the broker waits for an acknowledgement, or a sign that work goes on, before it sends a message again.
	// The feed sends that sign for each message that it has held for half of AckWait, so that a message that is settled sooner
	// costs the broker nothing. A reader that dies and is opened again without a position gets its messages after AckWait. 0 is
	// 5 minutes.
	AckWait time.Duration
	// Idle bounds how long Next waits for a message before it fails with [ErrIdle], after which it may be called
	// again; 0 is no bound.
	Idle time.Duration
}

func (o FeedOptions) withDefaults() FeedOptions {
	if o.MaxPending == 0 {
		o.MaxPending = 1024
	}
	if o.AckWait == 0 {
		o.AckWait = 5 * time.Minute
	}
	return o
}

func (o FeedOptions) validateOptions() error {
	return check.All(
		check.NotNegative("max_pending", o.MaxPending),
		check.AtLeast("ack_wait", o.AckWait, 100*time.Millisecond),
		CheckName("durable", o.Durable),
	)
}
