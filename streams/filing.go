package streams

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
)

// A refused message is stored in REJECTED, and then acked. Either waits for the broker, and a sender of nothing but messages that are
// refused must not have a reader wait twice for each: so refused messages are filed together.
const (
	// filedTogether is how many are sent to REJECTED before the first answer is waited for.
	filedTogether = 128
	// filedBytes bounds the bytes that wait in memory to be filed.
	filedBytes = 8 << 20
	// lull is how long no message comes before the messages that wait are filed.
	lull = 5 * time.Millisecond
)

// rejection is a message for REJECTED.
type rejection struct {
	from    origin
	reason  schemas.Reason
	id      string
	subject string
	header  nats.Header
	data    []byte
}

// filing are the messages of a feed that wait to be filed, in the order in which they were refused.
type filing struct {
	mu    sync.Mutex
	queue []rejection
	bytes int
	// turn is held while they are filed.
	turn sync.Mutex
}

func (q *filing) addRejection(m rejection) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, m)
	q.bytes += len(m.data)
}

// oldestRejections are the oldest, at most so many as are filed together.
func (q *filing) oldestRejections() []rejection {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.queue[:min(filedTogether, len(q.queue))])
}

// dropOldest takes the oldest out.
func (q *filing) dropOldest(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.queue[:n] {
		q.bytes -= len(m.data)
	}
	q.queue = slices.Delete(q.queue, 0, n)
}

func (q *filing) isEmpty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) == 0
}

func (q *filing) isFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) >= filedTogether || q.bytes >= filedBytes
}

// holdsSequence is whether the message at a sequence waits to be filed.
func (q *filing) holdsSequence(sequence uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.queue, func(m rejection) bool { return m.from.sequence == sequence })
}

// lowestSequence is the lowest sequence that waits to be filed, 0 if none does.
func (q *filing) lowestSequence() (low uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.queue {
		if low == 0 || m.from.sequence < low {
			low = m.from.sequence
		}
	}
	return low
}

// File stores in REJECTED the messages that were refused, by Next or with RejectSoon, and wait to be filed. It returns when the broker has
// stored them all and has confirmed the acknowledgements. Whoever keeps elsewhere that a message was refused files it first. Where File
// fails, a message that is not acked still waits, and filing it again stores nothing twice.
func (f *Feed) File(ctx context.Context) error {
	f.filing.turn.Lock()
	defer f.filing.turn.Unlock()
	for {
		some := f.filing.oldestRejections()
		if len(some) == 0 {
			return nil
		}
		if err := f.run.rejectTogether(ctx, some); err != nil {
			return err
		}
		if err := f.dismissFiled(ctx, some); err != nil {
			return err
		}
		f.filing.dropOldest(len(some))
	}
}

// dismissFiled acks messages that are in REJECTED.
func (f *Feed) dismissFiled(ctx context.Context, filed []rejection) error {
	filed = slices.SortedFunc(slices.Values(filed), func(a, b rejection) int { return cmp.Compare(a.from.sequence, b.from.sequence) })
	var answers []answer
	var highest uint64
	sequences := make([]uint64, len(filed))
	for i, m := range filed {
		sequences[i] = m.from.sequence
		replies, last, _ := f.book.lookupReplies(sequences[i : i+1])
		for _, reply := range replies {
			answers = append(answers, answer{reply, ackTerm(m.reason)})
		}
		highest = max(highest, last)
	}
	if err := f.sendAnswers(ctx, answers, highest); err != nil {
		return err
	}
	f.book.finishMessages(sequences...)
	if f.book.rememberedCount() > finishedKept {
		f.forgetFinished(ctx)
	}
	return nil
}

// rejectTogether sends messages to REJECTED in turn without waiting in between. Then it sends the messages that the broker did
// not take again, singly, and the messages that go in parts.
func (r *Run) rejectTogether(ctx context.Context, messages []rejection) error {
	room := int(r.nc.MaxPayload()) - headerRoom
	stored := make([]bool, len(messages))
	_ = r.conn.guardCall(ctx, r.names.subjectPrefix()+"rejected.", func(ctx context.Context) error {
		sent := make([]jetstream.PubAckFuture, len(messages))
		for i, m := range messages {
			if len(m.data) <= room {
				msg := &nats.Msg{Subject: m.subject, Header: copyHeader(m.header), Data: m.data}
				sent[i], _ = r.js.PublishMsgAsync(msg, jetstream.WithMsgID(messageID(m.id, m.data)), jetstream.WithExpectStream(r.names.rejected))
			}
		}
		for i, future := range sent {
			if future == nil {
				continue
			}
			select {
			case <-future.Ok():
				stored[i] = true
			case err := <-future.Err():
				r.log.Debug("message not filed at the first attempt", "id", messages[i].id, "err", err)
			case <-ctx.Done():
			}
		}
		return nil
	})
	for i, m := range messages {
		if stored[i] {
			continue
		}
		if err := r.storeRejection(ctx, m); err != nil {
			return err
		}
	}
	return nil
}
