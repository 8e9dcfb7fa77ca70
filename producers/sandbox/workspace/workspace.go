package workspace

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
)

//go:embed runner.py
var runner string

// Workspace is a sandbox with a runner in it. It implements [producers.Workspace].
type Workspace struct {
	process *sandbox.Process
	place   *sandbox.Place
	limits  sandbox.Limits
	// patience is how long the runner may take to answer, and to tell the end of a program that was to be killed.
	patience time.Duration
	// inhabited is true when a program was started here: a lack of room in the sandbox may then be its doing.
	inhabited atomic.Bool
	// closed is true when Weir itself ended the sandbox.
	closed atomic.Bool

	sending sync.Mutex
	mu      sync.Mutex
	next    uint64
	// waiting are questions, and running programs, by key.
	waiting map[string]chan event
}

// event is an event that the runner reports: an operation is done, or a program has ended.
type event struct {
	Key   string `json:"key"`
	Event string `json:"event"`
	Error string `json:"error"`
	Code  int    `json:"code"`
	// Entries are [name, size, "/" for a folder], and More whether there are others.
	Entries []Entry `json:"entries"`
	More    bool    `json:"more"`
}

// Entry is a file or a folder, by its name below the folder that was listed, with its size in bytes.
type Entry struct {
	Name   string
	Size   int64
	Folder bool
}

// UnmarshalJSON reads [name, size, "/" for a folder].
func (e *Entry) UnmarshalJSON(data []byte) error {
	var kind string
	if err := json.Unmarshal(data, &[]any{&e.Name, &e.Size, &kind}); err != nil {
		return err
	}
	e.Folder = kind == "/"
	return nil
}

// ErrGone is returned where the sandbox has ended in the midst of something.
var ErrGone = errors.New("the sandbox has ended")

// insideError is a refusal from the inside of a sandbox, such as a full disk or a process too many.
type insideError struct{ said string }

func (e *insideError) Error() string { return e.said }

// openWorkspace starts a runner on a place.
func openWorkspace(ctx context.Context, place *sandbox.Place) (*Workspace, error) {
	process, err := place.StartFirst(ctx, sandbox.Spec{Argv: []string{"python3", "-I", "-S", "-c", runner}})
	if err != nil {
		return nil, err
	}
	w := &Workspace{process: process, place: place, limits: place.Limits(), patience: answerWithin, waiting: map[string]chan event{}}
	go w.listenEvents()
	go discardAll(process.Stdout)
	go discardAll(process.Stderr)
	return w, nil
}

// discardAll reads data that is not needed, so that its writer does not wait for a reader.
func discardAll(f *os.File) {
	buffer := make([]byte, 4096)
	for {
		if _, err := f.Read(buffer); err != nil {
			return
		}
	}
}

// maxLine bounds a message of the runner or of a session.
const maxLine = 4 << 20

func (w *Workspace) listenEvents() {
	defer w.process.Close()
	lines := bufio.NewScanner(w.process.Control)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return // the runner is not itself any more
		}
		w.mu.Lock()
		if waiting := w.waiting[e.Key]; waiting != nil {
			select {
			case waiting <- e:
			default: // it has room for all events of a runner
			}
		}
		w.mu.Unlock()
	}
}

// Gone reports whether the sandbox has ended.
func (w *Workspace) Gone() bool {
	select {
	case <-w.process.Ended():
		return true
	default:
		return false
	}
}

// Inhabited reports whether a program was started in the workspace, beside its runner.
func (w *Workspace) Inhabited() bool { return w.inhabited.Load() }

// Close ends the sandbox and does not wait for it.
func (w *Workspace) Close() {
	w.closed.Store(true)
	w.process.Close()
}

// ReadFile reads a file from outside the sandbox: see [sandbox.Process.ReadFile].
func (w *Workspace) ReadFile(ctx context.Context, name string, limit int) ([]byte, error) {
	return w.process.ReadFile(ctx, name, limit)
}

// newKey makes a new key, under which events arrive until done is called.
func (w *Workspace) newKey() (key string, events chan event, done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	key, events = strconv.FormatUint(w.next, 10), make(chan event, 4)
	w.waiting[key] = events
	return key, events, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting, key)
	}
}

// sendRunner sends the runner a message within a time, with descriptors.
func (w *Workspace) sendRunner(within time.Duration, message map[string]any, files ...*os.File) error {
	message["fds"] = len(files)
	data, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("tell the runner: %w", err)
	}
	data = append(data, '\n')
	w.sending.Lock()
	defer w.sending.Unlock()
	// A runner that does not read is ended with its sandbox.
	_ = w.process.Control.SetWriteDeadline(time.Now().Add(within))
	err = sandbox.Send(w.process.Control, data, files...)
	if err != nil {
		w.process.Close() // half a message has no other half
		return fmt.Errorf("%w: tell the runner: %w", producers.ErrUnavailable, &insideError{err.Error()})
	}
	return nil
}

// sendWithin bounds the time in which a runner takes a message, signalWithin a signal's, which is short: an episode's end waits for it.
const (
	sendWithin   = time.Minute
	signalWithin = 5 * time.Second
)

// askRunner sends an operation and waits until it is done.
func (w *Workspace) askRunner(ctx context.Context, message map[string]any, files ...*os.File) (event, error) {
	key, events, done := w.newKey()
	defer done()
	message["key"] = key
	if err := w.sendRunner(sendWithin, message, files...); err != nil {
		return event{}, err
	}
	return w.awaitEvent(ctx, events)
}

// answerWithin bounds the time of a runner's answer. Where there is no process namespace, a program can stop the runner.
const answerWithin = time.Minute

// awaitEvent is the next event. Its errors are the end of ctx or of the sandbox, or the runner's own. A silent runner is ended
// with its sandbox.
func (w *Workspace) awaitEvent(ctx context.Context, events chan event) (event, error) {
	overdue := time.NewTimer(w.patience)
	defer overdue.Stop()
	select {
	case e := <-events:
		if e.Error != "" {
			return e, &insideError{e.Error}
		}
		return e, nil
	case <-w.process.Ended():
		return event{}, ErrGone
	case <-overdue.C:
		w.process.Close()
		return event{}, &insideError{fmt.Sprintf("the sandbox's runner did not answer within %s", w.patience)}
	case <-ctx.Done():
		return event{}, context.Cause(ctx)
	}
}

// WriteFile writes a file below /tmp by its relative name, as the policy could. If there is an entry that is no plain file, it
// is an error.
func (w *Workspace) WriteFile(ctx context.Context, name string, data []byte) error {
	r, out, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer r.Close()
	defer out.Close() // which ends the write where nobody reads
	go func() {
		_, _ = out.Write(data) // the runner reports it where it could not read it all
		_ = out.Close()
	}()
	if _, err := w.askRunner(ctx, map[string]any{"op": "write", "name": name}, r); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// List lists a folder and the folders below it, most entries at most. More is whether there are others.
func (w *Workspace) List(ctx context.Context, name string, most int) (entries []Entry, more bool, err error) {
	e, err := w.askRunner(ctx, map[string]any{"op": "list", "name": name, "most": most})
	if err != nil {
		return nil, false, fmt.Errorf("list %s: %w", name, err)
	}
	return e.Entries, e.More, nil
}

// sendSignal sends a signal to a program by its key, or to it and all that it started.
func (w *Workspace) sendSignal(key string, signal syscall.Signal, group bool) {
	own, _, done := w.newKey()
	defer done()
	_ = w.sendRunner(signalWithin, map[string]any{"op": "signal", "key": own, "of": key, "signal": int(signal), "group": group}) // it has ended where it fails
}
