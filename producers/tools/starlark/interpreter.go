package starlark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	jsonlib "go.starlark.net/lib/json"
	mathlib "go.starlark.net/lib/math"
	lang "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// interpreter is a session in a worker: the variables of its cells.
type interpreter struct {
	globals lang.StringDict
	notepad *notepad // nil is none
	single  string   // why a cell that is not a single call is refused; "" refuses none
	newest  lang.Value
	cells   int
	mu      sync.Mutex // held while a cell runs
}

// asker has the host call a function of the world.
type asker func(name string, args []json.RawMessage) (returned, error)

// underway is the state that a cell's functions reach through its thread.
type underway struct {
	ask asker
	out *output
	// answer is the submitted answer; nil is nothing.
	answer *string
	// newest is the value that submit() submits; nil is nothing.
	newest lang.Value
}

const underwayKey = "weir"

// errSubmitted ends a cell that has submitted an answer.
var errSubmitted = errors.New("submitted")

var dialect = &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true, Recursion: true}

func newInterpreter(o opening) (*interpreter, error) {
	s := &interpreter{single: o.Single, globals: lang.StringDict{
		"math": mathlib.Module, "json": jsonlib.Module, "sum": lang.NewBuiltin("sum", sumNumbers),
	}}
	if o.NotepadBytes > 0 {
		s.notepad = &notepad{most: o.NotepadBytes}
		s.globals["notepad"] = s.notepad
	}
	if o.Submit {
		s.globals["submit"] = lang.NewBuiltin("submit", submitAnswer)
	}
	for name, value := range o.Values {
		v, err := fromJSON(value)
		if err != nil {
			return nil, fmt.Errorf("value %s: %w", name, err)
		}
		s.globals[name] = v
	}
	for _, name := range o.Functions {
		s.globals[name] = lang.NewBuiltin(name, ofTheWorld)
	}
	return s, nil
}

// runCell runs a cell until ctx ends. It panics where the interpreter does.
func (s *interpreter) runCell(ctx context.Context, c cell, ask asker) *finished {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cells++
	u := &underway{ask: ask, out: &output{most: c.OutputBytes}, newest: s.newest}
	name := fmt.Sprintf("cell %d", s.cells)
	thread := &lang.Thread{Name: name, Print: func(_ *lang.Thread, text string) { u.out.printText(text + "\n") }}
	thread.Load = func(*lang.Thread, string) (lang.StringDict, error) {
		return nil, errors.New("there is nothing to load")
	}
	thread.SetLocal(underwayKey, u)
	thread.SetMaxExecutionSteps(uint64(c.Steps))
	timer := time.AfterFunc(time.Duration(c.LimitMS)*time.Millisecond, func() { thread.Cancel("too slow") })
	release := context.AfterFunc(ctx, func() { thread.Cancel("stopped") })
	err := s.executeCell(thread, name, removeIndent(c.Code), u)
	timer.Stop()
	release()

	done := &finished{Answer: u.answer, Outputs: u.out.parts}
	if err != nil && !errors.Is(err, errSubmitted) {
		text := explainError(err, name)
		switch {
		case strings.HasSuffix(text, tooSlowReason):
			text = c.TooSlow
		case strings.HasSuffix(text, tooManySteps):
			text = c.TooManySteps
		}
		u.out.addError(text)
		done.Errors, done.Outputs = 1, done.Outputs+1
	}
	if s.notepad != nil {
		done.Notes = s.notepad.String()
	}
	done.Text = u.out.String()
	return done
}

const (
	tooSlowReason = "Starlark computation cancelled: too slow"
	tooManySteps  = "Starlark computation cancelled: too many steps"
)

// lastValue is the variable of the value of a cell's last expression.
const lastValue = "_"

// executeCell runs the statements of a cell and shows the value of the last, if that is an expression.
func (s *interpreter) executeCell(thread *lang.Thread, name, code string, u *underway) error {
	file, err := dialect.Parse(name, code, 0)
	if err != nil {
		return err
	}
	if s.single != "" && !isSingleCall(file.Stmts) {
		return errors.New(s.single)
	}
	shows := false
	if n := len(file.Stmts); n > 0 {
		if e, ok := file.Stmts[n-1].(*syntax.ExprStmt); ok {
			shows = true
			start, _ := e.X.Span()
			file.Stmts[n-1] = &syntax.AssignStmt{OpPos: start, Op: syntax.EQ, LHS: &syntax.Ident{NamePos: start, Name: lastValue}, RHS: e.X}
		}
	}
	if err := lang.ExecREPLChunk(file, thread, s.globals); err != nil {
		return err
	}
	if v := s.globals[lastValue]; shows && v != nil && v != lang.None {
		u.out.showValue(v.String() + "\n")
		if s.single != "" {
			s.newest = v
		}
	}
	return nil
}

// sumNumbers adds numbers up: the language itself has no function for it.
func sumNumbers(_ *lang.Thread, b *lang.Builtin, args lang.Tuple, kwargs []lang.Tuple) (lang.Value, error) {
	var list lang.Iterable
	var total lang.Value = lang.MakeInt(0)
	if err := lang.UnpackArgs(b.Name(), args, kwargs, "x", &list, "start?", &total); err != nil {
		return nil, err
	}
	for element := range lang.Elements(list) {
		var err error
		if total, err = lang.Binary(syntax.PLUS, total, element); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// submitAnswer ends the episode with an answer: its argument, or the newest value where cells are single calls.
func submitAnswer(thread *lang.Thread, b *lang.Builtin, args lang.Tuple, kwargs []lang.Tuple) (lang.Value, error) {
	u := thread.Local(underwayKey).(*underway)
	x, least := u.newest, 1
	if x != nil {
		least = 0
	}
	if err := lang.UnpackPositionalArgs(b.Name(), args, kwargs, least, &x); err != nil {
		return nil, err
	}
	text := printedText(x)
	if len(text) > u.out.most {
		return nil, fmt.Errorf("submit: the answer is longer than %d bytes", u.out.most)
	}
	u.answer = &text
	return nil, errSubmitted
}

// ofTheWorld calls a function that the host has.
func ofTheWorld(thread *lang.Thread, b *lang.Builtin, args lang.Tuple, kwargs []lang.Tuple) (lang.Value, error) {
	if len(kwargs) > 0 {
		return nil, fmt.Errorf("%s: takes no argument by name", b.Name())
	}
	given := make([]json.RawMessage, len(args))
	for i, arg := range args {
		var err error
		if given[i], err = encodeValue(arg); err != nil {
			return nil, fmt.Errorf("%s: argument %d: %w", b.Name(), i+1, err)
		}
	}
	u := thread.Local(underwayKey).(*underway)
	r, err := u.ask(b.Name(), given)
	switch {
	case err != nil:
		return nil, err
	case r.Error != "":
		return nil, fmt.Errorf("%s: %s", b.Name(), r.Error)
	case r.Printed != nil:
		u.out.printText(*r.Printed + "\n")
		return lang.None, nil
	case r.Value == nil:
		return lang.None, nil
	}
	value, err := fromJSON(r.Value)
	if fields, ok := value.(*lang.Dict); ok && r.Record {
		return starlarkstruct.FromKeywords(starlarkstruct.Default, fields.Items()), err
	}
	return value, err
}
