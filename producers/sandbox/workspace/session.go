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

	"github.com/weir-rl/weir/producers"
)

// Opening is what a session of Python has from its beginning.
type Opening struct {
	// Functions are the names of functions that cells can call, and which [Session.Run] answers for; one with a point in it
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

// Session is an interpreter whose variables stay from cell to cell. One goroutine uses it.
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

// message is what a session says.
type message struct {
	ID   string `json:"id"`
	Call *struct {
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"call"`
	Done *Done `json:"done"`
}

// Done is what came of a cell, in the session's own words.
type Done struct {
	// Value is the printed form of the last expression's value, Error the traceback, Answer what was submitted; nil is none.
	Value, Error, Answer *string
	Notes                string
	// Output is what was written on the standard streams since the last cell.
	Output string `json:"-"`
	// Interrupted is whether the cell ran into its limit; Gone whether the session has ended, and its variables with it.
	Interrupted, Gone bool `json:"-"`
}

// Answerer answers for a function that a cell calls. printed is shown as output; an error that does not wrap producers.ErrUnavailable is raised
// in the cell.
type Answerer func(ctx context.Context, name string, args []any) (result any, printed *string, err error)

// Session starts an interpreter.
func (w *Workspace) Session(ctx context.Context, o Opening, output int) (*Session, error) {
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		_ = conn.Close()
		_ = theirs.Close()
		return nil, err
	}
	key, events, done := w.key()
	s := &Session{
		w: w, key: key, events: events, done: done, conn: conn, messages: make(chan message), hangUp: make(chan struct{}),
		out: NewOutput(outR, output),
	}
	err = w.send(sendWithin, map[string]any{"op": "session", "key": key}, theirs, outW)
	_ = theirs.Close()
	_ = outW.Close()
	if err == nil {
		_, err = w.await(ctx, events)
	}
	if err == nil {
		err = s.open(ctx, o)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("%w: start an interpreter: %w", producers.ErrUnavailable, err)
	}
	w.inhabited.Store(true)
	go s.listen()
	return s, nil
}

// open tells the interpreter what it begins with. One that does not read, such as one that another program of the sandbox has stopped, is given up
// with ctx.
func (s *Session) open(ctx context.Context, o Opening) error {
	values := o.Values
	if values == nil {
		values = map[string]json.RawMessage{}
	}
	functions := o.Functions
	if functions == nil {
		functions = []string{}
	}
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() }) // which ends the write below
	err := s.tell(map[string]any{
		"op": "open", "functions": functions, "values": values, "notepad": o.NotepadBytes, "submit": o.Submit, "site": o.Site, "prelude": o.Prelude,
	})
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

func (s *Session) tell(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("tell the interpreter: %w", err)
	}
	if _, err := s.conn.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("tell the interpreter: %w", err)
	}
	return nil
}

// listen hands on what the session says, line by line, until it says what is no message.
func (s *Session) listen() {
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
		s.w.signal(s.key, syscall.SIGKILL, true)
		close(s.hangUp)
		_ = s.conn.Close()
		s.out.Close()
		s.done()
	})
}

// graceAfterInterrupt is how long a cell has to end after it was interrupted.
const graceAfterInterrupt = time.Second

// Run runs a cell. Over the limit it is interrupted, and a second later killed, and the variables with it; the functions that it calls are given a context
// that ends with the limit. output bounds the value and the error, and what is submitted. Its errors are the machinery's, and leave the session closed.
//
// Invariant: a session that does not read what it is told keeps neither its time limit nor the end of ctx from Run.
func (s *Session) Run(ctx context.Context, code string, limit time.Duration, output int, answer Answerer) (Done, error) {
	id := rand.Text()
	limited, cancel := context.WithTimeoutCause(ctx, limit, errOver)
	defer cancel()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	// What the session is told is written beside the loop, and nothing that it says is taken meanwhile: one that calls functions and does not read the
	// answers waits by itself.
	sent := make(chan error, 1)
	tell := func(v any) { go func() { sent <- s.tell(v) }() }
	tell(map[string]any{"op": "run", "id": id, "code": code, "output": output})
	var heard chan message
	d := Done{}
	for {
		select {
		case err := <-sent:
			if err != nil {
				return s.over(d), nil
			}
			heard = s.messages
		case m, ok := <-heard:
			switch {
			case !ok:
				return s.over(d), nil
			case m.ID != id: // of an earlier cell, or forged
			case m.Done != nil:
				m.Done.Interrupted = d.Interrupted
				m.Done.Output = s.out.Take()
				return *m.Done, nil
			case m.Call != nil:
				reply, err := s.answer(limited, m.Call.Name, m.Call.Args, answer)
				if err != nil {
					s.Close()
					return d, err
				}
				reply["op"], reply["id"], heard = "answer", id, nil
				tell(reply)
			}
		case <-timer.C:
			if d.Interrupted {
				return s.over(d), nil
			}
			d.Interrupted = true
			s.w.signal(s.key, syscall.SIGINT, false)
			timer.Reset(graceAfterInterrupt)
		case e := <-s.events:
			if e.Event == "exit" {
				return s.over(d), nil
			}
		case <-s.w.process.Ended():
			return s.over(d), nil
		case <-ctx.Done():
			s.Close()
			return d, context.Cause(ctx)
		}
	}
}

// errOver ends what a cell has asked of a function when the cell's time is over.
var errOver = errors.New("the cell's time is over")

// over ends the session for good.
func (s *Session) over(d Done) Done {
	d.Gone, d.Output = true, s.out.Take()
	s.Close()
	return d
}

// answer is what the session is told of a call. Its error is the machinery's: that the cell's time is over is the cell's own doing, whatever the function
// makes of it.
func (s *Session) answer(limited context.Context, name string, given json.RawMessage, answer Answerer) (map[string]any, error) {
	var result any
	var printed *string
	args, err := arguments(given)
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
