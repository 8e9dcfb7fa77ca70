package workspace

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weir-rl/weir/internal/child"
	"github.com/weir-rl/weir/producers"
)

// Opening is the state that a session of Python starts with.
type Opening struct {
	// Functions are the names of functions that cells can call, and which [Session.Run] answers for. A name with a point in it
	// is a method of an object. Values are variables, as JSON.
	Functions []string
	Values    map[string]json.RawMessage
	// NotepadBytes bounds the notepad; 0 is none. Submit gives cells submit(x).
	NotepadBytes int
	Submit       bool
	// Site makes the packages of the machine's Python importable. Prelude is code that runs before the first cell, of the operator's.
	Site    bool
	Prelude string
}

// Session is an interpreter whose variables stay from cell to cell. A single goroutine uses it.
type Session struct {
	w        *Workspace
	key      string
	events   chan event
	done     func()
	conn     *net.UnixConn
	messages chan message
	hangUp   chan struct{}
	once     sync.Once
	out      *Output
}

// message is a message of a session.
type message struct {
	ID   string `json:"id"`
	Call *struct {
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"call"`
	Done *Done `json:"done"`
}

// Done is a cell's result, in the session's own words.
type Done struct {
	// Value is the printed form of the last expression's value, Error the traceback, Answer the submitted answer; nil is none.
	Value, Error, Answer *string
	Notes                string
	// Output is the bytes written on the standard streams since the last cell.
	Output string `json:"-"`
	// Interrupted is whether the cell ran into its limit; Gone whether the session has ended, and its variables with it.
	Interrupted, Gone bool `json:"-"`
}

// Answerer answers for a function that a cell calls. printed is shown as output; an error that does not wrap producers.ErrUnavailable is raised
// in the cell.
type Answerer func(ctx context.Context, name string, args []any) (result any, printed *string, err error)

// Session starts an interpreter.
func (w *Workspace) Session(ctx context.Context, o Opening, output int) (*Session, error) {
	conn, theirs, err := child.SocketPair()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		_ = conn.Close()
		_ = theirs.Close()
		return nil, err
	}
	key, events, done := w.newKey()
	s := &Session{
		w: w, key: key, events: events, done: done, conn: conn, messages: make(chan message), hangUp: make(chan struct{}),
		out: NewOutput(outR, output),
	}
	err = w.sendRunner(sendWithin, map[string]any{"op": "session", "key": key}, theirs, outW)
	_ = theirs.Close()
	_ = outW.Close()
	if err == nil {
		_, err = w.awaitEvent(ctx, events)
	}
	if err == nil {
		err = s.sendOpening(ctx, o)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("%w: start an interpreter: %w", producers.ErrUnavailable, err)
	}
	w.inhabited.Store(true)
	go s.readMessages()
	return s, nil
}

// sendOpening sends the interpreter its opening. If it does not read, for example because another program of the sandbox has
// stopped it, it is given up with ctx.
func (s *Session) sendOpening(ctx context.Context, o Opening) error {
	values := o.Values
	if values == nil {
		values = map[string]json.RawMessage{}
	}
	functions := o.Functions
	if functions == nil {
		functions = []string{}
	}
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() }) // which ends the write below
	err := s.sendMessage(map[string]any{
		"op": "open", "functions": functions, "values": values, "notepad": o.NotepadBytes, "submit": o.Submit, "site": o.Site, "prelude": o.Prelude,
	})
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

func (s *Session) sendMessage(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("tell the interpreter: %w", err)
	}
	if _, err := s.conn.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("tell the interpreter: %w", err)
	}
	return nil
}

// readMessages hands the session's messages on, line by line, until a line that is no message.
func (s *Session) readMessages() {
	defer close(s.messages)
	lines := bufio.NewScanner(s.conn)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return
		}
		select {
		case s.messages <- m:
		case <-s.hangUp:
			return
		}
	}
}

// Close kills the session and all that it started.
func (s *Session) Close() {
	s.once.Do(func() {
		s.w.sendSignal(s.key, syscall.SIGKILL, true)
		close(s.hangUp)
		_ = s.conn.Close()
		s.out.Close()
		s.done()
	})
}

// graceAfterInterrupt is how long a cell has to end after it was interrupted.
const graceAfterInterrupt = time.Second

// Run runs a cell. Over the limit it is interrupted, and a second later killed, and the variables with it; the functions that
// it calls are given a context that ends with the limit. output bounds the value, the error and the submitted answer. Its
// errors are the machinery's, and leave the session closed.
//
// Invariant: a session that does not read what it is told keeps neither its time limit nor the end of ctx from Run.
func (s *Session) Run(ctx context.Context, code string, limit time.Duration, output int, answer Answerer) (Done, error) {
	id := rand.Text()
	limited, cancel := context.WithTimeoutCause(ctx, limit, errOver)
	defer cancel()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	// The bytes to the session are written beside the loop, and none of its messages is taken meanwhile: a session that calls
	// functions and does not read the answers waits by itself.
	sent := make(chan error, 1)
	tell := func(v any) { go func() { sent <- s.sendMessage(v) }() }
	tell(map[string]any{"op": "run", "id": id, "code": code, "output": output})
	var heard chan message
	d := Done{}
	for {
		select {
		case err := <-sent:
			if err != nil {
				return s.endSession(d), nil
			}
			heard = s.messages
		case m, ok := <-heard:
			switch {
			case !ok:
				return s.endSession(d), nil
			case m.ID != id: // of an earlier cell, or forged
			case m.Done != nil:
				m.Done.Interrupted = d.Interrupted
				m.Done.Output = s.out.Take()
				return *m.Done, nil
			case m.Call != nil:
				reply, err := s.answerCall(limited, m.Call.Name, m.Call.Args, answer)
				if err != nil {
					s.Close()
					return d, err
				}
				reply["op"], reply["id"], heard = "answer", id, nil
				tell(reply)
			}
		case <-timer.C:
			if d.Interrupted {
				return s.endSession(d), nil
			}
			d.Interrupted = true
			s.w.sendSignal(s.key, syscall.SIGINT, false)
			timer.Reset(graceAfterInterrupt)
		case e := <-s.events:
			if e.Event == "exit" {
				return s.endSession(d), nil
			}
		case <-s.w.process.Ended():
			return s.endSession(d), nil
		case <-ctx.Done():
			s.Close()
			return d, context.Cause(ctx)
		}
	}
}

// errOver ends a cell's calls of functions when the cell's time is over.
var errOver = errors.New("the cell's time is over")

// endSession ends the session for good.
func (s *Session) endSession(d Done) Done {
	d.Gone, d.Output = true, s.out.Take()
	s.Close()
	return d
}

// answerCall is the answer to a session's call. Its error is the machinery's. The end of the cell's time is the cell's own
// doing, whatever the function makes of it.
func (s *Session) answerCall(limited context.Context, name string, given json.RawMessage, answer Answerer) (map[string]any, error) {
	var result any
	var printed *string
	args, err := decodeArguments(given)
	if err == nil {
		result, printed, err = answer(limited, name, args)
	}
	over := errors.Is(context.Cause(limited), errOver)
	switch {
	case err != nil && !over && (errors.Is(err, producers.ErrUnavailable) || limited.Err() != nil):
		return nil, err
	case err != nil:
		return map[string]any{"error": err.Error()}, nil //nolint:nilerr // the program is told
	case printed != nil:
		return map[string]any{"printed": *printed}, nil
	}
	return map[string]any{"result": Exact(result)}, nil
}
