package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// Feed reads TRAJECTORIES in order for a single reader. A sequence is returned once in the life of a feed, however often the broker sends
// it. Next is for a single goroutine; the other methods may be called at the same time.
type Feed struct {
	run     *Run
	options FeedOptions
	start   Position

	// Used by Next's goroutine alone. interrupted is set from the second subscription on.
	pull        *feedPull
	reconnects  uint64
	interrupted bool
	passed      uint64
	refused     map[schemas.Reason]int
	refusedBy   producerCounts
	// unfiled says that Next has refused messages which may wait to be filed, ready is the delivery that it returns once they are.
	unfiled bool
	ready   *Delivery

	book   book
	filing filing
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	close  sync.Once
}

// Feed opens the reader. ctx is its life. With a position it fails with [ErrStreamRecreated] when the stream is not that of the
// position, and with [ErrStreamTruncated] when the stream ends before the position, or no longer holds the message of Known.
func (r *Run) Feed(ctx context.Context, options FeedOptions) (*Feed, error) {
	options = options.withDefaults()
	if options.Durable == "" {
		options.Durable = readerOf(r.seatEpoch())
	}
	if err := options.validateOptions(); err != nil {
		return nil, fmt.Errorf("configure feed: %w", err)
	}
	if err := r.checkSeat(ctx); err != nil {
		return nil, fmt.Errorf("open feed: %w", err)
	}
	f := &Feed{run: r, options: options, refused: map[schemas.Reason]int{}}
	state, err := f.identifyStream(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.openConsumer(ctx); err != nil {
		return nil, err
	}
	if from := options.From; from != nil {
		if from.Sequence > state.LastSeq {
			return nil, fmt.Errorf("%w: stream %s ends at %d, the position is %d", ErrStreamTruncated, from.Stream, state.LastSeq, from.Sequence)
		}
		if err := f.checkIntact(ctx, state, options.Known); err != nil {
			return nil, err
		}
		if from.Sequence+1 < state.FirstSeq {
			r.log.Warn("messages after the position are purged", "position", from.Sequence, "first", state.FirstSeq)
		}
		if err := f.resetConsumer(ctx, from.Sequence+1); err != nil {
			return nil, err
		}
		f.start.Sequence = from.Sequence
	}
	f.book, f.passed = newBook(f.start.Sequence), f.start.Sequence
	if options.From != nil {
		f.book.noteMessage(options.Known)
	}
	life, cancel := context.WithCancel(ctx)
	f.cancel = cancel
	f.tasks.Go(func() { f.renewPending(life, options.AckWait) })
	return f, nil
}

// Identity is the stream that the feed reads and the position it began after.
func (f *Feed) Identity() Position { return f.start }

// Known is the last message that the feed, or the reader that opened it, knows to have been in the stream.
func (f *Feed) Known() Mark { return f.book.lastKnown() }

// Close ends the feed, once Next has returned for the last time. The broker sends the messages that were returned and not acked to
// the next feed of the same name.
func (f *Feed) Close() {
	f.close.Do(func() {
		f.cancel()
		f.tasks.Wait()
		for _, reply := range append(f.drainMessages(), f.book.replies()...) {
			_ = f.run.sendAck(reply, ackNak)
		}
	})
}

// drainMessages ends the subscription and returns the reply subjects of the messages that have come.
func (f *Feed) drainMessages() (replies []string) {
	if f.pull == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	for _, m := range f.run.drainReplies(ctx, f.pull.replies, f.pull.came) {
		if m.Reply != "" { // no heartbeat
			replies = append(replies, m.Reply)
		}
	}
	return replies
}

// identifyStream finds the stream and compares it with the stream that the feed must read.
func (f *Feed) identifyStream(ctx context.Context) (jetstream.StreamState, error) {
	want := f.start
	if want.Stream == "" && f.options.From != nil {
		want = *f.options.From
	}
	info, err := f.run.identifyTrajectories(ctx, want)
	if err != nil {
		return jetstream.StreamState{}, err
	}
	f.start.Stream, f.start.Created = info.Config.Name, info.Created
	return info.State, nil
}

// identifyTrajectories finds TRAJECTORIES and compares it with the stream of a position, unless that names none.
func (r *Run) identifyTrajectories(ctx context.Context, want Position) (info *jetstream.StreamInfo, err error) {
	name := r.names.trajectories
	err = r.callBroker(ctx, "read stream "+name, name, func(ctx context.Context) error {
		s, err := r.js.Stream(ctx, name)
		if err == nil {
			info = s.CachedInfo()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if want.Stream != "" && (want.Stream != name || !want.Created.Equal(info.Created)) {
		return nil, &RecreatedError{Stream: name, Want: want.Created, Have: info.Created}
	}
	return info, nil
}

// checkIntact fails with [ErrStreamTruncated] where the stream has lost the message at a mark. A broker that comes back with an
// older copy of its store has the same stream, by name and creation time, and gives the sequences that it lost to other messages;
// once it has stored enough other messages, only the message at the mark shows the loss.
func (f *Feed) checkIntact(ctx context.Context, state jetstream.StreamState, known Mark) error {
	return f.run.checkIntact(ctx, state, known)
}

// checkIntact is that of a Feed.
func (r *Run) checkIntact(ctx context.Context, state jetstream.StreamState, known Mark) error {
	name := r.names.trajectories
	switch {
	case known.Sequence == 0:
		return nil
	case known.Sequence > state.LastSeq:
		return fmt.Errorf("%w: stream %s ends at %d, it held %d before", ErrStreamTruncated, name, state.LastSeq, known.Sequence)
	case known.Stored.IsZero() || known.Sequence < state.FirstSeq: // not known, or purged
		return nil
	}
	stored, err := r.readStoredPart(ctx, known.Sequence)
	if err != nil || stored == nil { // removed by hand
		return err
	}
	if !stored.Time.Equal(known.Stored) {
		return fmt.Errorf("%w: stream %s holds at %d a message stored %s, and held one stored %s before", ErrStreamTruncated, name,
			known.Sequence, stored.Time.UTC().Format(time.RFC3339Nano), known.Stored.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// readerUnused is how long the consumer of an epoch stays when nobody uses it. A reader whose consumer is gone makes the consumer
// again.
const readerUnused = 24 * time.Hour

func (f *Feed) openConsumer(ctx context.Context) error {
	name := f.run.names.trajectories
	unused := time.Duration(0)
	if f.run.seat != nil {
		unused = readerUnused
	}
	return f.run.callBroker(ctx, "open consumer "+f.options.Durable, name, func(ctx context.Context) error {
		_, err := f.run.js.CreateOrUpdateConsumer(ctx, name, jetstream.ConsumerConfig{
			Durable:       f.options.Durable,
			Description:   "reader of trajectories",
			DeliverPolicy: jetstream.DeliverAllPolicy,
			AckPolicy:     jetstream.AckExplicitPolicy,
			AckWait:       f.options.AckWait,
			MaxAckPending: f.options.MaxPending,
			// A message that cannot be used is rejected with a reason; no message is dropped because it was sent too often.
			MaxDeliver: -1,
			// The consumer of an epoch that is over does not stay.
			InactiveThreshold: unused,
		})
		return err
	})
}

func (f *Feed) resetConsumer(ctx context.Context, sequence uint64) error {
	name := f.run.names.trajectories
	return f.run.callBroker(ctx, "reset consumer "+f.options.Durable, name, func(ctx context.Context) error {
		_, err := f.run.js.ResetConsumerToSequence(ctx, name, f.options.Durable, sequence)
		return err
	})
}

// Next waits for the next message. A message that cannot be used goes to REJECTED, and Next returns no more of it than a marker that
// closes its samples. Next goes on over a restart of the broker; it fails when ctx ends, the feed is closed, the stream is made
// anew ([ErrStreamRecreated]) or comes back without messages that it held ([ErrStreamTruncated]), or no message that can be used comes
// for too long ([ErrIdle]).
func (f *Feed) Next(ctx context.Context) (*Delivery, error) {
	for began := time.Now(); ; {
		if f.options.Idle > 0 && f.ready == nil && time.Since(began) >= f.options.Idle {
			return nil, fmt.Errorf("read trajectories: %w", ErrIdle)
		}
		if f.ready != nil || f.filing.isFull() {
			if err := f.File(ctx); err != nil {
				return nil, fmt.Errorf("read trajectories: %w", err)
			}
			f.unfiled = false
		}
		if d := f.ready; d != nil {
			f.ready = nil
			return d, nil
		}
		msg, err := f.pullMessages(ctx)
		if errors.Is(err, errLull) {
			if err = f.File(ctx); err == nil {
				f.unfiled = false
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("read trajectories: %w", err)
		}
		d, err := f.acceptMessage(ctx, msg)
		if err != nil {
			// The message is neither returned nor refused: have it sent again, before the messages after it.
			f.unsubscribeConsumer()
			return nil, fmt.Errorf("read trajectories: %w", err)
		}
		if meta, err := msg.Metadata(); err == nil {
			f.passed = max(f.passed, meta.Sequence.Stream)
		}
		// A message after a message that Next refused is returned once that is filed; but for markers in the place of such messages.
		if d != nil && f.unfiled && d.Refused == "" {
			f.ready = d
			continue
		}
		if d != nil {
			return d, nil
		}
	}
}

// pullMessages is the next message from the broker, unread.
func (f *Feed) pullMessages(ctx context.Context) (*nats.Msg, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if f.pull == nil || f.reconnects != f.run.nc.Stats().Reconnects {
			if err := f.subscribeConsumer(ctx); err != nil {
				return nil, err
			}
		}
		msg, err := f.awaitMessage(ctx)
		switch {
		case err == nil:
			return msg, nil
		case errors.Is(err, ErrIdle), errors.Is(err, errLull):
			return nil, err
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			// ctx has ended, or the connection was made again.
		case f.run.nc.IsClosed():
			return nil, fmt.Errorf("connection: %w", ErrClosed)
		default:
			f.run.log.Debug("feed interrupted; subscribing again", "err", err)
			f.unsubscribeConsumer()
			if err := seam.Wait(ctx, backoffMin); err != nil {
				return nil, err
			}
		}
	}
}

// errLull says that no message is there already, while refused ones wait to be filed.
var errLull = errors.New("no message is there yet")

// awaitMessage waits until there is a message, ctx ends, or the connection is made again; with messages that wait to be filed, not for
// long.
func (f *Feed) awaitMessage(ctx context.Context) (*nats.Msg, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer f.run.conn.returns.watchReturns(cancel)()
	if f.reconnects != f.run.nc.Stats().Reconnects {
		return nil, context.Canceled
	}
	if f.options.Idle > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, f.options.Idle, ErrIdle)
		defer stop()
	}
	if !f.filing.isEmpty() {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, lull, errLull)
		defer stop()
	}
	msg, err := f.pull.nextMessage(ctx)
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, ErrIdle) || errors.Is(cause, errLull)) {
		return nil, cause
	}
	if err == nil && f.reconnects != f.run.nc.Stats().Reconnects {
		// The message may be of a stream that is gone; if it is not, the broker sends it again.
		return nil, context.Canceled
	}
	return msg, err
}

// subscribeConsumer asks for messages, for the first time or again. After an interruption the broker counts messages as delivered that were
// lost on the way; resetting the consumer to the acked messages has the broker send the lost messages again at once, and not after
// AckWait. The book keeps a message from being returned twice.
func (f *Feed) subscribeConsumer(ctx context.Context) error {
	f.unsubscribeConsumer()
	if err := f.run.checkSeat(ctx); err != nil {
		return err
	}
	f.reconnects = f.run.nc.Stats().Reconnects
	state, err := f.identifyStream(ctx)
	if err != nil {
		return err
	}
	if err := f.checkIntact(ctx, state, f.book.lastKnown()); err != nil {
		return err
	}
	if err := f.openConsumer(ctx); err != nil {
		return err
	}
	name := f.run.names.trajectories
	err = f.run.callBroker(ctx, "subscribe to "+name, name, func(ctx context.Context) error {
		c, err := f.run.js.Consumer(ctx, name, f.options.Durable)
		if err != nil {
			return err
		}
		if f.interrupted {
			if _, err := f.run.js.ResetConsumerToSequence(ctx, name, f.options.Durable, f.book.resumeSequence(c.CachedInfo().AckFloor.Stream)); err != nil {
				return err
			}
		}
		f.pull, err = f.run.openPull(name, f.options.Durable)
		return err
	})
	f.interrupted = true
	return err
}

func (f *Feed) unsubscribeConsumer() {
	if f.pull != nil {
		f.pull.stopPulling()
		f.pull = nil
	}
}

// renewPending keeps the broker from sending messages in flight again: it tells the broker that they are being worked on. It looks every
// eighth of ackWait for messages of which the broker has received no sign for half of it, so that a sign is sent before five
// eighths have passed.
func (f *Feed) renewPending(ctx context.Context, ackWait time.Duration) {
	for seam.Wait(ctx, ackWait/8) == nil {
		for _, reply := range f.book.dueReplies(time.Now().Add(-ackWait / 2)) {
			_ = f.run.sendAck(reply, ackWorking)
		}
	}
}
