package streams

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/streams/internal/seam"
)

// Streams are read by direct requests and not through consumers; the producers' consumer and the trainer's are the only two. The
// server publishes the messages of a consumer to any subject that its maker names, with the server's own rights: a role that may
// make a consumer may do whatever the server may.

// readStall is how long a request waits for its next message before it is made again.
const readStall = 30 * time.Second

// readMessages calls see with the messages of a stream under a subject, from a sequence on, in their order, and at most a window of them.
// It returns the sequence to go on from, and whether the stream holds more. After the connection was lost it goes on with the next message.
// It also fails with the error of see.
func (r *Run) readMessages(
	ctx context.Context, stream, subject string, from uint64, w seam.Window, see func(seam.Message) error,
) (next uint64, more bool, err error) {
	next = max(from, 1)
	var seen error
	messages, bytes := w.Messages, w.Bytes
	what := fmt.Sprintf("read %s of %s", subject, stream)
	// The time between two messages is bounded, not the time of all: a slow link is no failure while messages come.
	err = retryWithin(ctx, r.log, what, 10*time.Minute, IsTransient, func(ctx context.Context) error {
		return r.conn.guardCall(ctx, stream, func(ctx context.Context) (err error) {
			more, err = r.requestMessages(ctx, stream, subject, next, seam.Window{Messages: messages, Bytes: bytes}, func(m seam.Message) bool {
				next = m.Sequence + 1
				messages, bytes = messages-1, max(bytes-len(m.Data), 1)
				seen = see(m)
				return seen == nil && messages > 0
			})
			return err
		})
	})
	if seen != nil {
		return next, more, seen
	}
	return next, more, err
}

// requestMessages makes a request and calls see until it returns false or the answer ends.
func (r *Run) requestMessages(
	ctx context.Context, stream, subject string, from uint64, w seam.Window, see func(seam.Message) bool,
) (more bool, err error) {
	body, err := json.Marshal(struct {
		From    uint64 `json:"seq"`
		Subject string `json:"next_by_subj"`
		Batch   int    `json:"batch"`
		Bytes   int    `json:"max_bytes"`
	}{from, subject, w.Messages, w.Bytes})
	if err != nil {
		return false, err
	}
	inbox := r.nc.NewInbox()
	replies, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		return false, err
	}
	defer func() { _ = replies.Unsubscribe() }() // fails only when the connection is gone, and the subscription with it
	// The window bounds the messages that come. The client library's own bound, 64 MiB, is no larger than a window may be: a reader that is
	// slower than the broker would lose the last messages.
	if err := replies.SetPendingLimits(-1, -1); err != nil {
		return false, err
	}
	if err := r.nc.PublishRequest(r.conn.api+".DIRECT.GET."+stream, inbox, body); err != nil {
		return false, err
	}
	for {
		m, err := nextWithin(ctx, replies, readStall)
		if err != nil {
			return false, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "404":
			return false, nil
		case "204":
			return m.Header.Get("Nats-Num-Pending") != "0", nil
		case "503":
			return false, nats.ErrNoResponders
		default:
			return false, fmt.Errorf("the broker answers %s %s", status, m.Header.Get("Description"))
		}
		sequence, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
		if err != nil {
			return false, fmt.Errorf("read the sequence of a message: %w", err)
		}
		if sequence < from {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
		if err != nil {
			return false, fmt.Errorf("read the time of message %d: %w", sequence, err)
		}
		if !see(seam.Message{Sequence: sequence, At: at, Header: m.Header, Data: m.Data}) {
			return true, nil
		}
	}
}

func nextWithin(ctx context.Context, sub *nats.Subscription, d time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return sub.NextMsgWithContext(ctx)
}

// told gets a notice when a stream has stored a message under a subject, or when the connection was lost and made again. A notice is a
// hint: the reader reads the stream itself.
type told struct {
	sub  *nats.Subscription
	stop func()
	// again holds a value when there may be unread messages; highest is the highest sequence of a notice.
	again chan uint64
	// back is whether the connection was lost and made again since the last look.
	back atomic.Bool
}

// listenStored subscribes to the notices of a stream. what is "events", or a bucket and a key with a dot between.
func (r *Run) listenStored(what string) (*told, error) {
	t := &told{again: make(chan uint64, 1)}
	var err error
	t.sub, err = r.nc.Subscribe(r.names.storedSubject(what), func(m *nats.Msg) {
		sequence, _ := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64) // 0 is not known
		t.noteSequence(sequence)
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", r.names.storedSubject(what), err)
	}
	t.stop = r.conn.returns.watchReturns(func() {
		t.back.Store(true)
		t.noteSequence(0)
	})
	return t, nil
}

func (t *told) noteSequence(sequence uint64) {
	for {
		select {
		case t.again <- sequence:
			return
		case before := <-t.again:
			sequence = max(sequence, before)
		}
	}
}

func (t *told) stopListening() {
	t.stop()
	_ = t.sub.Unsubscribe() // fails only when the connection is gone, and the subscription with it
}
