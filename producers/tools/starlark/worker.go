package starlark

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-rl/weir/internal/child"
)

// killDelay is how long the complaints of a killed worker may take to arrive.
const killDelay = 5 * time.Second

// worker is a process that runs cells, as the host sees it.
type worker struct {
	process    *child.Process
	conn       net.Conn
	complaints complaints
	writing    sync.Mutex

	mu      sync.Mutex
	waiting map[string]chan reply // by cell
	// Guarded by the tool's mutex: how many sessions it has, whether it had several, and whether it belongs to a single session.
	sessions     int
	crowded, own bool
	// sacrificed: a cell of it is known to have ended the worker.
	sacrificed bool
	// crowd is how many cells ran when it ended.
	crowd int

	// ended is closed when the process has, and its slot is free.
	ended chan struct{}
}

// newWorker starts a worker; ended is called once it is no more.
func newWorker(memory int64, ended func()) (*worker, error) {
	said := newComplaints()
	process, conn, err := spawnWorker(memory, said)
	if err != nil {
		return nil, err
	}
	w := &worker{process: process, conn: conn, complaints: said, waiting: map[string]chan reply{}, ended: make(chan struct{})}
	go func() {
		if w.readReplies() {
			timer := time.AfterFunc(killDelay, func() { process.Signal(syscall.SIGKILL) })
			defer timer.Stop() // the process ends with its socket
		} else {
			process.Signal(syscall.SIGKILL) // a worker that breaks the protocol is of no use
		}
		w.mu.Lock()
		w.crowd = len(w.waiting)
		w.mu.Unlock()
		_ = conn.Close()
		<-process.Done()
		close(w.ended)
		ended()
	}()
	return w, nil
}

// readReplies passes replies on until the socket ends; false where the worker broke the protocol.
func (w *worker) readReplies() bool {
	in := newLines(w.conn)
	for {
		var r reply
		if err := in.nextLine(&r); err != nil {
			return !errors.Is(err, errLine)
		}
		w.mu.Lock()
		waiting := w.waiting[r.ID]
		w.sacrificed = w.sacrificed || r.Done != nil && r.Done.Gone
		w.mu.Unlock()
		if waiting == nil || (r.Call == nil) == (r.Done == nil) {
			return false // nobody asked
		}
		select {
		case waiting <- r:
		default:
			return false // more than a cell can have to say at a time
		}
	}
}

// sendRequest sends a request. A worker that cannot be written to has ended: errEnded is returned once its end is known.
func (w *worker) sendRequest(r request) error {
	w.writing.Lock()
	err := writeLine(w.conn, r)
	w.writing.Unlock()
	if err != nil {
		_ = w.conn.Close()
		<-w.ended
		return fmt.Errorf("%w: %w", errEnded, err)
	}
	return nil
}

// killProcess ends the process, because of a cell, and waits for the end.
func (w *worker) killProcess() {
	w.mu.Lock()
	w.sacrificed = true
	w.mu.Unlock()
	w.process.Signal(syscall.SIGKILL)
	_ = w.conn.Close()
	<-w.ended
}

// atFault reports that the only cell which ran when a worker ended has ended it.
func (w *worker) atFault() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.crowd == 1 && !w.sacrificed
}

// isAlive reports whether the worker has not ended.
func (w *worker) isAlive() bool {
	select {
	case <-w.ended:
		return false
	default:
		return true
	}
}

// errTooSlow is returned for a cell that ran on when it was told to end.
var errTooSlow = errors.New("the cell could not be interrupted")

// errEnded is returned for a cell whose worker ended.
var errEnded = errors.New("the worker ended")

// cellHost is the host's side of a cell.
type cellHost struct {
	// answer calls a function of the world.
	answer func(asked) (returned, error)
	// reserve keeps the worker for the cell's session if no other session has the worker, and reports whether that is so.
	reserve func() bool
}

// runCell runs a cell, which may go on for limit without a call of a function. After any error the cell is over, and the variables of its
// session are to be given up; after errTooSlow and errEnded the worker is dead.
func (w *worker) runCell(ctx context.Context, session string, c cell, limit time.Duration, host cellHost) (*finished, error) {
	id, replies := rand.Text(), make(chan reply, 1)
	w.mu.Lock()
	w.waiting[id] = replies
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.waiting, id)
		w.mu.Unlock()
	}()
	if err := w.sendRequest(request{Session: session, ID: id, Run: &c}); err != nil {
		return nil, err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case r := <-replies:
			if r.Done != nil {
				return r.Done, nil
			}
			result, err := host.answer(*r.Call)
			if err != nil {
				w.stopCell(id, replies, limit, host.reserve())
				return nil, err
			}
			timer.Reset(limit) // in the function's time the cell could not be interrupted
			if err := w.sendRequest(request{ID: id, Answer: &result}); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			w.stopCell(id, replies, limit, host.reserve())
			return nil, context.Cause(ctx)
		case <-timer.C:
			w.killProcess()
			return nil, errTooSlow
		case <-w.ended:
			select {
			case r := <-replies: // its last words
				if r.Done != nil {
					return r.Done, nil
				}
			default:
			}
			return nil, errEnded
		}
	}
}

// stopCell ends a cell whose call has ended. A worker that is reserved for the cell's session ends too; in a worker that other sessions
// share the cell is interrupted, and costs the other sessions their variables only where the cell goes on for limit.
func (w *worker) stopCell(id string, replies <-chan reply, limit time.Duration, reserved bool) {
	if reserved {
		w.killProcess()
		return
	}
	if w.sendRequest(request{ID: id, Stop: true}) != nil {
		return // the worker has ended
	}
	overdue := time.NewTimer(limit)
	defer overdue.Stop()
	for {
		select {
		case r := <-replies:
			if r.Done != nil {
				return
			}
		case <-overdue.C:
			w.killProcess()
			return
		case <-w.ended:
			return
		}
	}
}

// howEnded returns how the worker ended, which the caller knows.
func (w *worker) howEnded() string {
	switch complaint := w.complaints.String(); {
	case w.process.KilledBy() != 0:
		return fmt.Sprintf("was ended by signal %d", int(w.process.KilledBy()))
	case complaint != "":
		return "ended: " + complaint
	default:
		return fmt.Sprintf("ended with status %d", w.process.ExitCode())
	}
}

// ranOutOfMemory reports whether the worker ended for want of memory.
func (w *worker) ranOutOfMemory() bool {
	return w.process.ExitCode() == exitMemory || strings.Contains(w.complaints.String(), "out of memory") ||
		strings.Contains(w.complaints.String(), "cannot allocate memory")
}

// complaints are the beginning of a worker's standard error, which says why it ends.
type complaints struct{ *child.Head }

func newComplaints() complaints { return complaints{child.NewHead(2048)} }

// String is the first line that says something.
func (c complaints) String() string {
	line, _, _ := strings.Cut(c.Text(), "\n")
	return line
}
