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
	err = w.send(map[string]any{"op": "session", "key": key}, theirs, outW)
	_ = theirs.Close()
	_ = outW.Close()
	if err == nil {
		_, err = w.await(ctx, events)
	}
	if err == nil {
		err = s.open(o)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("%w: start an interpreter: %w", producers.ErrUnavailable, err)
	}
	go s.listen()
	return s, nil
}

func (s *Session) open(o Opening) error {
	values := o.Values
	if values == nil {
		values = map[string]json.RawMessage{}
	}
	functions := o.Functions
	if functions == nil {
		functions = []string{}
	}
	return s.tell(map[string]any{
		"op": "open", "functions": functions, "values": values, "notepad": o.NotepadBytes, "submit": o.Submit, "site": o.Site, "prelude": o.Prelude,
	})
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

// Run runs a cell. Over the limit it is interrupted, and a second later killed, and the variables with it. output bounds the value and
// the error. Its errors are the machinery's, and leave the session closed.
func (s *Session) Run(ctx context.Context, code string, limit time.Duration, output int, answer Answerer) (Done, error) {
	id := rand.Text()
	// Written beside the loop below: a session that does not read must not keep its time limit from it.
	sent := make(chan error, 1)
	go func() { sent <- s.tell(map[string]any{"op": "run", "id": id, "code": code, "output": output}) }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	d := Done{}
	for {
		select {
		case err := <-sent:
			if err != nil {
				return s.over(d), nil
			}
			sent = nil
		case m, ok := <-s.messages:
			switch {
			case !ok:
				return s.over(d), nil
			case m.ID != id: // of an earlier cell, or forged
			case m.Done != nil:
				m.Done.Interrupted = d.Interrupted
				m.Done.Output = s.out.Take()
				return *m.Done, nil
			case m.Call != nil:
				if err := s.answer(ctx, id, m.Call.Name, m.Call.Args, answer); err != nil {
					s.Close()
					return d, err
				}
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

// over ends the session for good.
func (s *Session) over(d Done) Done {
	d.Gone, d.Output = true, s.out.Take()
	s.Close()
	return d
}

func (s *Session) answer(ctx context.Context, id, name string, given json.RawMessage, answer Answerer) error {
	reply := map[string]any{"op": "answer", "id": id}
	var result any
	var printed *string
	args, err := arguments(given)
	if err == nil {
		result, printed, err = answer(ctx, name, args)
	}
	switch {
	case errors.Is(err, producers.ErrUnavailable) || err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		reply["error"] = err.Error()
	case printed != nil:
		reply["printed"] = *printed
	default:
		reply["result"] = Exact(result)
	}
	if err := s.tell(reply); err != nil {
		return nil //nolint:nilerr // the session has ended, and the loop of Run sees that
	}
	return nil
}
