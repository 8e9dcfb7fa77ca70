package template

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// writer writes JSON as Python's json.dumps does.
type writer struct {
	strings.Builder
	ascii, sorted bool
	indent        string // of a level; "" with no line breaks
	lines         bool
	item, key     string // the separators
}

// tojsonFilter is the filter tojson as transformers has it.
func tojsonFilter(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	w := &writer{item: ", ", key: ": "}
	if err := w.readOptions(params); err != nil {
		return exec.AsValue(fmt.Errorf("tojson: %w", err))
	}
	if err := w.writeValue(in, 0); err != nil {
		return exec.AsValue(fmt.Errorf("tojson: %w", err))
	}
	return exec.AsSafeValue(w.String())
}

// readOptions reads ensure_ascii, indent, separators and sort_keys, in this order where they have no name.
func (w *writer) readOptions(params *exec.VarArgs) error {
	names := []string{"ensure_ascii", "indent", "separators", "sort_keys"}
	if len(params.Args) > len(names) {
		return fmt.Errorf("%d arguments: want at most %d", len(params.Args), len(names))
	}
	given := map[string]*exec.Value{}
	for i, v := range params.Args {
		given[names[i]] = v
	}
	for name, v := range params.KwArgs {
		if !slices.Contains(names, name) {
			return fmt.Errorf("unknown argument %s", name)
		}
		given[name] = v
	}
	is := func(name string) bool { return given[name] != nil && given[name].IsTrue() }
	w.ascii, w.sorted = is("ensure_ascii"), is("sort_keys")
	if v := given["indent"]; v != nil && !v.IsNil() {
		w.lines, w.item = true, ","
		if v.IsString() {
			w.indent = v.String()
		} else {
			w.indent = strings.Repeat(" ", max(0, min(v.Integer(), 64)))
		}
	}
	if v := given["separators"]; v != nil && !v.IsNil() {
		if !v.IsList() || v.Len() != 2 {
			return errors.New("separators: want two")
		}
		w.item, w.key = v.Index(0).String(), v.Index(1).String()
	}
	return nil
}

func (w *writer) writeValue(v *exec.Value, depth int) error {
	switch {
	case depth > maxDepth:
		return fmt.Errorf("nested deeper than %d", maxDepth)
	case v.IsError():
		return errors.New(v.Error())
	case v.IsNil():
		w.WriteString("null")
	case v.IsBool():
		w.WriteString(strconv.FormatBool(v.Bool()))
	case v.IsInteger():
		w.WriteString(strconv.Itoa(v.Integer()))
	case v.IsFloat():
		w.WriteString(pythonFloat(v.Float()))
	case v.IsString():
		w.writeString(v.String())
	case v.IsDict():
		return w.writeObject(v, depth)
	case v.IsList():
		return w.writeList(v, depth)
	default:
		return fmt.Errorf("a %T is not serializable", v.Interface())
	}
	return nil
}

func (w *writer) writeList(v *exec.Value, depth int) error {
	n := v.Len()
	w.WriteByte('[')
	for i := range n {
		w.beforeEntry(i, depth)
		if err := w.writeValue(exec.ToValue(v.Index(i)), depth+1); err != nil {
			return err
		}
	}
	w.afterEntries(n, depth)
	w.WriteByte(']')
	return nil
}

func (w *writer) writeObject(v *exec.Value, depth int) error {
	all := pairsOf(v)
	if w.sorted {
		slices.SortStableFunc(all, func(a, b *exec.Pair) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	}
	w.WriteByte('{')
	for i, p := range all {
		w.beforeEntry(i, depth)
		w.writeString(p.Key.String())
		w.WriteString(w.key)
		if err := w.writeValue(p.Value, depth+1); err != nil {
			return err
		}
	}
	w.afterEntries(len(all), depth)
	w.WriteByte('}')
	return nil
}

// beforeEntry writes the text before the i-th entry, afterEntries the text that closes them.
func (w *writer) beforeEntry(i, depth int) {
	if i > 0 {
		w.WriteString(w.item)
	}
	w.breakLine(depth + 1)
}

func (w *writer) afterEntries(n, depth int) {
	if n > 0 {
		w.breakLine(depth)
	}
}

func (w *writer) breakLine(depth int) {
	if w.lines {
		w.WriteByte('\n')
		w.WriteString(strings.Repeat(w.indent, depth))
	}
}

// writeString writes a string. Without ensure_ascii only quotes, backslashes and control characters are escaped.
func (w *writer) writeString(s string) {
	w.WriteByte('"')
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch short := strings.IndexByte("\"\\\n\r\t\b\f", s[i]); {
		case short >= 0:
			w.WriteByte('\\')
			w.WriteByte(`"\nrtbf`[short])
		case r >= ' ' && (!w.ascii || r < 0x7f || r == utf8.RuneError && size == 1 || isMark(r)):
			w.WriteString(s[i : i+size])
		case r >= 0x10000:
			fmt.Fprintf(w, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			fmt.Fprintf(w, `\u%04x`, r)
		}
		i += size
	}
	w.WriteByte('"')
}

// isMark reports whether a character is never escaped: no text holds it, and a caller may mark text with it.
func isMark(r rune) bool { return r >= 0xfdd0 && r <= 0xfdef }

// pythonFloat is repr(f).
func pythonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 0):
		return map[bool]string{true: "Infinity", false: "-Infinity"}[f > 0]
	}
	if size := math.Abs(f); size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// pairsOf are the pairs of a dictionary, in its order.
func pairsOf(v *exec.Value) []*exec.Pair {
	switch d := v.Interface().(type) {
	case *exec.Dict:
		return slices.Clone(d.Pairs)
	case exec.Dict:
		return slices.Clone(d.Pairs)
	}
	var out []*exec.Pair
	v.Iterate(func(_, _ int, key, value *exec.Value) bool {
		out = append(out, &exec.Pair{Key: key, Value: value})
		return true
	}, func() {})
	return out
}
