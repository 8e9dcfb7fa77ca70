package starlark

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// request is a line to a worker: a single part is there, or Stop or Close alone.
type request struct {
	// Session names a session of the worker: a nonce of the host's, which no cell can know.
	Session string `json:"session,omitempty"`
	// ID names the cell that the line is about, a nonce too.
	ID string `json:"id,omitempty"`
	// Open makes a session.
	Open *opening `json:"open,omitempty"`
	// Run runs a cell in a session.
	Run *cell `json:"run,omitempty"`
	// Answer is the result of a function of the world for a cell.
	Answer *returned `json:"answer,omitempty"`
	// Stop ends a cell before its time; a cell that is over is left alone.
	Stop bool `json:"stop,omitempty"`
	// Close ends a session.
	Close bool `json:"close,omitempty"`
}

// opening describes the environment of a session's cells.
type opening struct {
	// Functions are the names of functions that the host answers for.
	Functions []string `json:"functions,omitempty"`
	// Values are predeclared variables.
	Values map[string]json.RawMessage `json:"values,omitempty"`
	// NotepadBytes bounds the notepad; 0 is none.
	NotepadBytes int `json:"notepad_bytes,omitempty"`
	// Submit gives cells submit(x).
	Submit bool `json:"submit,omitempty"`
	// Single is why a cell that is not a single call is refused; "" takes any cell.
	Single string `json:"single,omitempty"`
}

// cell is code to run.
type cell struct {
	Code        string `json:"code"`
	Steps       int64  `json:"steps"`
	LimitMS     int64  `json:"limit_ms"`
	OutputBytes int    `json:"output_bytes"`
	// TooSlow and TooManySteps are the observations at these bounds.
	TooSlow      string `json:"too_slow"`
	TooManySteps string `json:"too_many_steps"`
}

// returned is a function's result: JSON, or why there is none.
type returned struct {
	Value json.RawMessage `json:"value,omitempty"`
	// Printed is shown, and None returned, where Value is absent.
	Printed *string `json:"printed,omitempty"`
	// Record says that Value is an object whose entries are attributes.
	Record bool   `json:"record,omitempty"`
	Error  string `json:"error,omitempty"`
}

// reply is a line from a worker, about the cell ID: Call asks the host for a function, Done ends the cell.
type reply struct {
	ID   string    `json:"id"`
	Call *asked    `json:"call,omitempty"`
	Done *finished `json:"done,omitempty"`
}

// asked is the call of a function of the world.
type asked struct {
	Name string            `json:"name"`
	Args []json.RawMessage `json:"args,omitempty"`
}

// finished is the result of a cell.
type finished struct {
	Text string `json:"text,omitempty"`
	// Outputs and Errors are of an observation.
	Outputs int `json:"outputs,omitempty"`
	Errors  int `json:"errors,omitempty"`
	// Answer is the submitted answer.
	Answer *string `json:"answer,omitempty"`
	// Notes are the notepad as it stands.
	Notes string `json:"notes,omitempty"`
	// Gone says that the interpreter failed in a way that leaves its state unknown: the worker ends.
	Gone bool `json:"gone,omitempty"`
}

// maxLine bounds a line of the protocol: its contents are bounded to less, and JSON writes a byte as six at most.
const maxLine = 8 * (maxCode + maxOutput + maxNotepad)

// errLine is a line that is not of the protocol.
var errLine = errors.New("the line is not of the protocol")

// lines reads JSON lines.
type lines struct{ scanner *bufio.Scanner }

func newLines(r io.Reader) *lines {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), maxLine)
	return &lines{s}
}

// nextLine reads a line; io.EOF is the end.
func (l *lines) nextLine(into any) error {
	if !l.scanner.Scan() {
		err := l.scanner.Err()
		if err == nil {
			return io.EOF
		}
		if errors.Is(err, bufio.ErrTooLong) {
			return fmt.Errorf("%w: %w", errLine, err)
		}
		return fmt.Errorf("read a line: %w", err)
	}
	if err := json.Unmarshal(l.scanner.Bytes(), into); err != nil {
		return fmt.Errorf("%w: %w", errLine, err)
	}
	return nil
}

// writeLine writes a JSON line in a single call.
func writeLine(w io.Writer, line any) error {
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("write a line: %w", err)
	}
	if len(data) >= maxLine {
		return errors.New("write a line: it is too long")
	}
	if _, err := w.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("write a line: %w", err)
	}
	return nil
}
