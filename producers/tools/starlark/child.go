package starlark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/metrics"
	"strconv"
	"sync"
	"time"
)

// childName is a worker's argv[0]: the name that a list of processes shows, which makes this program a worker.
const childName = "weir-starlark"

// How a worker ends, besides with its socket.
const (
	exitBroken = 3
	exitMemory = 86
)

// An init, and no function that main or a TestMain would have to call: whatever links the package can start workers of itself.
func init() {
	if len(os.Args) == 2 && os.Args[0] == childName {
		os.Exit(runWorker(os.Args[1]))
	}
}

// runWorker is the whole of a worker: memory is its bound in bytes. It returns its exit status.
func runWorker(memory string) int {
	bound, err := strconv.ParseInt(memory, 10, 64)
	if err == nil {
		err = limitProcess(bound)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "weir-starlark:", err)
		return exitBroken
	}
	w := &cells{
		sessions: map[string]*interpreter{}, running: map[string]*runningCell{},
		bound: uint64(bound), socket: os.NewFile(3, "host"), stop: func(status int) { os.Exit(status) },
	}
	if err := w.serveRequests(); err != nil {
		fmt.Fprintln(os.Stderr, "weir-starlark:", err)
		return exitBroken
	}
	return 0
}

// cells are the sessions of a worker.
type cells struct {
	// bound is the worker's memory in bytes.
	bound  uint64
	socket io.ReadWriter
	stop   func(status int)

	writing  sync.Mutex
	mu       sync.Mutex
	sessions map[string]*interpreter
	// running are the cells that are not over, by their ID.
	running map[string]*runningCell
}

// runningCell is a cell that is not over.
type runningCell struct {
	// stop ends the cell's context.
	stop context.CancelFunc
	// answers has room for the result of a function: a cell makes a single call at a time.
	answers chan returned
}

// serveRequests serves the host's requests until the socket ends, whatever cells are running then.
func (w *cells) serveRequests() error {
	in := newLines(w.socket)
	for {
		var r request
		if err := in.nextLine(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := w.handleRequest(r); err != nil {
			return err
		}
	}
}

// handleRequest handles a request of the host.
func (w *cells) handleRequest(r request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case r.Open != nil:
		s, err := newInterpreter(*r.Open)
		if err != nil {
			return fmt.Errorf("open a session: %w", err)
		}
		w.sessions[r.Session] = s
	case r.Close:
		delete(w.sessions, r.Session)
	case r.Answer != nil:
		if running := w.running[r.ID]; running != nil {
			running.answers <- *r.Answer
		}
	case r.Stop:
		if running := w.running[r.ID]; running != nil {
			running.stop()
		}
	case r.Run != nil:
		s := w.sessions[r.Session]
		if s == nil {
			return errors.New("run a cell: there is no such session")
		}
		ctx, stop := context.WithCancel(context.Background())
		running := &runningCell{stop, make(chan returned, 1)}
		w.running[r.ID] = running
		go w.runCell(ctx, s, running, r.ID, *r.Run)
	}
	return nil
}

// runCell runs a cell until ctx ends, and replies with its result.
func (w *cells) runCell(ctx context.Context, s *interpreter, running *runningCell, id string, c cell) {
	defer running.stop()
	over := make(chan struct{})
	go w.watchMemory(over)
	done := w.runProtected(ctx, s, running, id, c)
	close(over)
	w.mu.Lock()
	delete(w.running, id)
	w.mu.Unlock()
	if err := w.sendReply(reply{ID: id, Done: done}); err != nil || done.Gone {
		w.stop(exitBroken)
	}
}

// runProtected turns a panic of the interpreter into the end of the session: its state is lost then.
func (w *cells) runProtected(ctx context.Context, s *interpreter, running *runningCell, id string, c cell) (done *finished) {
	defer func() {
		if fault := recover(); fault != nil {
			done = &finished{Text: fmt.Sprintf("Error: the interpreter failed: %.200v%s", fault, gone), Outputs: 1, Errors: 1, Gone: true}
		}
	}()
	return s.runCell(ctx, c, func(name string, args []json.RawMessage) (returned, error) {
		if err := w.sendReply(reply{ID: id, Call: &asked{name, args}}); err != nil {
			return returned{}, err
		}
		select {
		case answer := <-running.answers:
			return answer, nil
		case <-ctx.Done():
			return returned{}, ctx.Err()
		}
	})
}

// sendReply sends a reply to the host.
func (w *cells) sendReply(r reply) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	return writeLine(w.socket, r)
}

// watchEvery is how often a worker looks at its memory while a cell runs.
const watchEvery = 10 * time.Millisecond

// watchMemory ends the worker when it has more memory than it may, until a cell is over. The kernel's own bound, if any, is met at twice
// that.
func (w *cells) watchMemory(over <-chan struct{}) {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-over:
			return
		case <-ticker.C:
		}
		if metrics.Read(sample); sample[0].Value.Uint64()-sample[1].Value.Uint64() > w.bound {
			w.stop(exitMemory)
		}
	}
}
