package template

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/builtins/methods"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// raised stands in an error of gonja's before the text that a template passes to raise_exception.
const raised = "invalid call to function 'raise_exception': "

// newEnvironment is everything that a template can name. Nothing in it is shared.
func newEnvironment(now func() time.Time) (*exec.Environment, error) {
	filters, err := filtersOf()
	structures := map[string]parser.ControlStructureParser{"generation": generationParser}
	for _, name := range []string{"if", "for", "set", "macro", "call", "filter", "with", "do", "break", "continue", "raw"} {
		p, ok := controls.All.Get(name)
		if !ok {
			err = errors.Join(err, fmt.Errorf("gonja has no {%% %s %%}", name))
		}
		structures[name] = p
	}
	globals := exec.EmptyContext().Update(builtins.GlobalFunctions)
	globals.Set("range", rangeOf)
	globals.Set("dict", dictOf)
	globals.Set("raise_exception", func(params *exec.VarArgs) *exec.Value {
		return exec.AsValue(errors.New(params.First().String()))
	})
	globals.Set("strftime_now", func(params *exec.VarArgs) *exec.Value {
		text, err := formatTime(now(), params.First().String())
		if err != nil {
			return exec.AsValue(err)
		}
		return exec.AsValue(text)
	})
	own := methods.All
	own.Dict, own.Str = exec.NewMethodSet(dictMethods()), exec.NewMethodSet(strMethods())
	return &exec.Environment{
		Context: globals, Filters: filters, Tests: builtins.Tests, ControlStructures: exec.NewControlStructureSet(structures), Methods: own,
	}, err
}

// generation is {% generation %}: it marks the assistant's text, and renders as its content.
type generation struct {
	at   *tokens.Token
	body *nodes.Wrapper
}

func (g *generation) Position() *tokens.Token { return g.at }
func (g *generation) String() string          { return "generation" }

// Execute renders the body.
func (g *generation) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.ExecuteWrapper(g.body)
}

func generationParser(p, _ *parser.Parser) (nodes.ControlStructure, error) {
	g := &generation{at: p.Current()}
	var err error
	g.body, _, err = p.WrapUntil("endgeneration")
	return g, err
}

// only is a loader of a single text: there is nothing else to load.
type only struct{ text string }

const onlyName = "template"

func (o only) Read(string) (io.Reader, error)         { return strings.NewReader(o.text), nil }
func (only) Resolve(string) (string, error)           { return onlyName, nil }
func (o only) Inherit(string) (loaders.Loader, error) { return o, nil }

// formatTime writes a time as Python's strftime does, with the C locale's names.
func formatTime(t time.Time, format string) (string, error) {
	layouts := map[byte]string{
		'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'd': "02", 'H': "15", 'I': "03", 'j': "002", 'm': "01", 'M': "04",
		'p': "PM", 'S': "05", 'y': "06", 'Y': "2006", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'e': "_2",
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		if format[i] == '-' && i+1 < len(format) { // without the leading zero
			i++
			if layout, ok := layouts[format[i]]; ok {
				b.WriteString(strings.TrimLeft(t.Format(layout), "0 "))
				continue
			}
		}
		layout, ok := layouts[format[i]]
		switch {
		case format[i] == '%':
			b.WriteByte('%')
		case ok:
			b.WriteString(t.Format(layout))
		default:
			return "", fmt.Errorf("strftime_now: %%%c is not known", format[i])
		}
	}
	return b.String(), nil
}
