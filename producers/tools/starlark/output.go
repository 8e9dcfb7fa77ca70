package starlark

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.starlark.net/resolve"
	lang "go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// output is the output of a cell, up to a bound.
type output struct {
	most int
	text strings.Builder
	left int // bytes that did not fit
	// parts counts kinds of output: the printed text, and the value that was shown.
	parts   int
	printed bool
}

// printText adds a printed text.
func (o *output) printText(text string) {
	if !o.printed {
		o.printed = true
		o.parts++
	}
	o.addText(text)
}

// showValue adds the value of an expression.
func (o *output) showValue(text string) {
	o.parts++
	o.addText(text)
}

// leastFault is the room that an error has, in bytes, however small the bound.
const leastFault = 1024

// addError adds an error, also where the output is full: it is cut to the bound by itself.
func (o *output) addError(text string) {
	o.noteCut()
	o.text.WriteString(cutBytes(text, max(o.most, leastFault)))
	o.text.WriteByte('\n')
}

// addText adds a text, as far as there is room.
func (o *output) addText(text string) {
	fits := cutBytes(text, o.most-o.text.Len())
	if o.left > 0 {
		fits = ""
	}
	o.left += len(text) - len(fits)
	o.text.WriteString(fits)
}

// noteCut adds how much was left out.
func (o *output) noteCut() {
	if o.left > 0 {
		if text := o.text.String(); text != "" && !strings.HasSuffix(text, "\n") {
			o.text.WriteByte('\n')
		}
		fmt.Fprintf(&o.text, "... (%d more bytes)\n", o.left)
		o.left = 0
	}
}

// String is the output without the line's end.
func (o *output) String() string {
	o.noteCut()
	return strings.TrimSuffix(o.text.String(), "\n")
}

// cutBytes shortens a text to so many bytes, between characters.
func cutBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:max(0, most)]
}

// maxFrames bounds the lines of a traceback: the outermost and the innermost are kept.
const maxFrames = 8

// explainError describes the error of a cell, with places in cells alone.
func explainError(err error, name string) string {
	var fault syntax.Error
	var faults resolve.ErrorList
	var raised *lang.EvalError
	switch {
	case errors.As(err, &fault):
		return fmt.Sprintf("Error: line %d: %s", fault.Pos.Line, fault.Msg)
	case errors.As(err, &faults):
		lines := make([]string, len(faults))
		for i, f := range faults {
			lines[i] = fmt.Sprintf("Error: line %d: %s", f.Pos.Line, f.Msg)
		}
		return strings.Join(lines, "\n")
	case errors.As(err, &raised):
		return callStack(raised, name) + "Error: " + raised.Msg
	}
	return "Error: " + err.Error()
}

// callStack returns the places of a call stack, each in a line; nothing where the first line of this cell is the only place.
func callStack(e *lang.EvalError, name string) string {
	var places []string
	for _, frame := range e.CallStack {
		if !strings.HasPrefix(frame.Pos.Filename(), "cell ") {
			continue // a function that is no cell's
		}
		place := fmt.Sprintf("  %s, line %d", frame.Pos.Filename(), frame.Pos.Line)
		if frame.Name != "<toplevel>" {
			place += ", in " + frame.Name
		}
		places = append(places, place+"\n")
	}
	if len(places) == 0 || len(places) == 1 && places[0] == "  "+name+", line 1\n" {
		return ""
	}
	if over := len(places) - maxFrames; over > 0 {
		half := maxFrames / 2
		places = append(append(places[:half:half], fmt.Sprintf("  ... (%d more)\n", over)), places[len(places)-half:]...)
	}
	return "Traceback:\n" + strings.Join(places, "")
}

// removeIndent takes from each line the white space that the first line with code begins with.
func removeIndent(code string) string {
	code = strings.ReplaceAll(code, "\r\n", "\n")
	lines := strings.Split(code, "\n")
	margin := ""
	for _, line := range lines {
		if text := strings.TrimLeft(line, " \t"); text != "" {
			margin = line[:len(line)-len(text)]
			break
		}
	}
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, margin)
	}
	return strings.TrimRight(strings.Join(lines, "\n"), " \t\n") + "\n"
}
