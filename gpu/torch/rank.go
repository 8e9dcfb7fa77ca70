package torch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// rank is a process of a group, from the group's side.
type rank struct {
	number int
	conn   io.ReadWriteCloser
	// process is nil for a rank of another machine, which name names.
	process *process
	name    string

	sending sync.Mutex
	mu      sync.Mutex
	// waiting are the answers that are waited for, by id. An answer that nobody waits for any more is dropped.
	waiting map[uint64]chan *frame
	// op is the operation that was sent last and not answered, for the error that names the rank's end.
	op string

	// heard is when the last frame came; moved when the rank last did a piece of work. Both in nanoseconds since the group began.
	heard, moved atomic.Int64
}

func newRank(number int, conn io.ReadWriteCloser, p *process, name string) *rank {
	return &rank{number: number, conn: conn, process: p, name: name, waiting: map[uint64]chan *frame{}}
}

// String names the rank and where it runs.
func (r *rank) String() string { return fmt.Sprintf("rank %d (%s)", r.number, r.name) }

// sendRequest sends a request; its answer, of which there may be two, comes from the channel.
func (r *rank) sendRequest(id uint64, op string, header map[string]any, buffers ...buffer) (<-chan *frame, error) {
	all := map[string]any{"id": id, "op": op}
	maps.Copy(all, header)
	data, err := appendFrame(nil, all, buffers...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	answer := make(chan *frame, 2)
	r.mu.Lock()
	r.waiting[id], r.op = answer, op
	r.mu.Unlock()
	r.sending.Lock()
	defer r.sending.Unlock()
	_, err = r.conn.Write(data)
	return answer, err
}

// forgetAnswers drops the answers of a request that are still to come.
func (r *rank) forgetAnswers(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, id)
}

// isBusy reports whether an answer is waited for, and of which operation the rank's last was.
func (r *rank) isBusy() (op string, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.op, len(r.waiting) > 0
}

// readAnswers hands answers out until the connection ends, and returns the reason.
func (r *rank) readAnswers(since time.Time) error {
	in := bufio.NewReaderSize(r.conn, 1<<16)
	var done int64
	for {
		f, err := readFrame(in)
		if err != nil {
			return err
		}
		now := int64(time.Since(since))
		r.heard.Store(now)
		if f.ID == 0 {
			if f.Done != done || f.Op == "" {
				r.moved.Store(now)
			}
			done = f.Done
			continue
		}
		r.moved.Store(now)
		r.mu.Lock()
		if answer := r.waiting[f.ID]; answer != nil {
			select {
			case answer <- f:
			default: // more answers than there can be
			}
		}
		r.mu.Unlock()
	}
}

// call is a request under way.
type call struct {
	group  *group
	rank   *rank
	id     uint64
	op     string
	answer <-chan *frame
}

// nextAnswer waits for the next answer. Errors are ctx's, ErrLost where the group has ended, or the rank's own, where that
// leaves the group as it was.
func (c *call) nextAnswer(ctx context.Context) (*frame, error) {
	select {
	case f := <-c.answer:
		if f.Error != nil {
			return nil, c.group.failedCall(c, f.Error)
		}
		return f, nil
	case <-c.group.dead:
		return nil, c.group.lostError()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// endCall drops the answers that are still to come.
func (c *call) endCall() { c.rank.forgetAnswers(c.id) }
