package template

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/builtins/methods"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// filtersOf are the interpreter's filters. Lists have Python's indices, and filters that differ from Python's are replaced.
func filtersOf() (*exec.FilterSet, error) {
	set := map[string]exec.FilterFunction{"tojson": tojsonFilter, "items": itemsFilter, "trim": trimFilter}
	var err error
	for _, name := range []string{
		"abs", "attr", "batch", "capitalize", "center", "default", "d", "dictsort", "first", "float", "indent", "int", "join", "last",
		"length", "count", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round", "safe", "select",
		"selectattr", "slice", "sort", "string", "sum", "title", "truncate", "unique", "upper", "wordcount", "e", "escape", "groupby",
	} {
		f, ok := builtins.Filters.Get(name)
		if !ok {
			err = errors.Join(err, fmt.Errorf("gonja has no filter %s", name))
			continue
		}
		set[name] = func(e *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
			return pythonIndexed(f(e, in, params))
		}
	}
	return exec.NewFilterSet(set), err
}

// pythonIndexed is a value with Python's negative indices, where it is a list.
func pythonIndexed(v *exec.Value) *exec.Value {
	if v == nil || v.IsNil() || v.IsError() || !v.IsList() {
		return v
	}
	if _, done := v.Interface().(list); done {
		return v
	}
	out := make(list, v.Len())
	for i := range out {
		out[i] = exec.ToValue(v.Index(i)).Interface()
	}
	return exec.AsValue(out)
}

// trimFilter is the filter trim: a missing value is "".
func trimFilter(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	chars := params.First()
	if v := params.KwArgs["chars"]; v != nil {
		chars = v
	}
	return exec.AsValue(strings.TrimFunc(in.String(), cutSet(chars)))
}

// cutSet selects the characters to cut off: the characters of a text, or white space as Python defines it where there is no
// text.
func cutSet(chars *exec.Value) func(rune) bool {
	if chars.IsNil() {
		return func(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
	}
	return func(r rune) bool { return strings.ContainsRune(chars.String(), r) }
}

// cutMethod is a method that cuts characters off.
func cutMethod(cut func(string, func(rune) bool) string) exec.Method[string] {
	return func(self string, _ *exec.Value, params *exec.VarArgs) (any, error) {
		if len(params.Args) > 1 || len(params.KwArgs) > 0 {
			return nil, errors.New("strip: want the characters to cut off, or nothing")
		}
		return cut(self, cutSet(params.First())), nil
	}
}

// strMethods are the methods of strings; those that differ from Python's are replaced.
func strMethods() map[string]exec.Method[string] {
	set := map[string]exec.Method[string]{
		"replace": replaceMethod, "split": splitMethod, "strip": cutMethod(strings.TrimFunc), "lstrip": cutMethod(strings.TrimLeftFunc), "rstrip": cutMethod(strings.TrimRightFunc),
	}
	for _, name := range []string{
		"capitalize", "casefold", "center", "count", "endswith", "expandtabs", "find", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit",
		"islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "join", "ljust", "lower", "partition", "removeprefix",
		"removesuffix", "rfind", "rjust", "rpartition", "rsplit", "splitlines", "startswith", "swapcase", "title", "upper", "zfill",
	} {
		method, ok := methods.All.Str.Get(name)
		if !ok {
			continue // a template that calls it is refused
		}
		set[name] = func(self string, v *exec.Value, params *exec.VarArgs) (any, error) {
			out, err := method(self, v, params)
			if err != nil {
				return nil, err
			}
			return pythonIndexed(exec.ToValue(out)).Interface(), nil
		}
	}
	return set
}

func replaceMethod(self string, _ *exec.Value, params *exec.VarArgs) (any, error) {
	n := len(params.Args)
	if n < 2 || n > 3 || len(params.KwArgs) > 0 {
		return nil, errors.New("replace: want what, by what, and how often")
	}
	count := -1
	if n == 3 {
		count = params.Args[2].Integer()
	}
	return strings.Replace(self, params.Args[0].String(), params.Args[1].String(), count), nil
}

func splitMethod(self string, _ *exec.Value, params *exec.VarArgs) (any, error) {
	sep, most := params.First(), -1
	if len(params.Args) > 1 {
		most = params.Args[1].Integer()
	}
	for name, v := range params.KwArgs {
		switch name {
		case "sep":
			sep = v
		case "maxsplit":
			most = v.Integer()
		default:
			return nil, fmt.Errorf("split: unknown argument %s", name)
		}
	}
	out := list{}
	if sep.IsNil() {
		if most >= 0 {
			return nil, errors.New("split: maxsplit without a separator is not supported")
		}
		for word := range strings.FieldsSeq(self) {
			out = append(out, word)
		}
		return out, nil
	}
	if sep.String() == "" {
		return nil, errors.New("split: the separator is empty")
	}
	parts := -1
	if most >= 0 {
		parts = most + 1
	}
	for _, part := range strings.SplitN(self, sep.String(), parts) {
		out = append(out, part)
	}
	return out, nil
}

// dictOf is dict(). It refuses more than a single argument, since their order is not known here.
func dictOf(params *exec.VarArgs) *exec.Value {
	out := exec.NewDict()
	if len(params.Args) == 1 && params.Args[0].IsDict() {
		out.Pairs = pairsOf(params.Args[0])
	} else if len(params.Args) > 0 {
		return exec.AsValue(errors.New("dict: want a dictionary, or a name and a value"))
	}
	if len(params.KwArgs) > 1 {
		return exec.AsValue(errors.New("dict: the order of more than one name is not known"))
	}
	for name, v := range params.KwArgs {
		out.Pairs = append(out.Pairs, &exec.Pair{Key: exec.AsValue(name), Value: v})
	}
	return exec.AsValue(out)
}

// maxRange bounds range's length, so that no template takes all memory.
const maxRange = 1 << 20

// rangeOf is Python's range, as a list.
func rangeOf(params *exec.VarArgs) *exec.Value {
	bounds := []int{0, 0, 1}
	switch n := len(params.Args); n {
	case 1:
		bounds[1] = params.Args[0].Integer()
	case 2, 3:
		for i, v := range params.Args {
			bounds[i] = v.Integer()
		}
	default:
		return exec.AsValue(fmt.Errorf("range: %d arguments", n))
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return exec.AsValue(errors.New("range: the step is 0"))
	}
	out := list{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(out) == maxRange {
			return exec.AsValue(fmt.Errorf("range: more than %d numbers", maxRange))
		}
		out = append(out, i)
	}
	return exec.AsValue(out)
}

// pairOf is a key and its value as a template sees them: a list of two.
func pairOf(p *exec.Pair) list { return list{p.Key.Interface(), p.Value.Interface()} }

func itemsOf(v *exec.Value) list {
	out := list{}
	for _, p := range pairsOf(v) {
		out = append(out, pairOf(p))
	}
	return out
}

// itemsFilter is the filter items: the pairs of a dictionary, in its order.
func itemsFilter(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	switch {
	case in.IsError():
		return in
	case len(params.Args)+len(params.KwArgs) > 0:
		return exec.AsValue(errors.New("items: takes no argument"))
	case in.IsNil():
		return exec.AsValue(list{})
	case !in.IsDict():
		return exec.AsValue(errors.New("items: want a mapping"))
	}
	return exec.AsValue(itemsOf(in))
}

// dictMethods are the methods of a dictionary, which keep its order and the kinds of its values.
func dictMethods() map[string]exec.Method[map[string]any] {
	type method = exec.Method[map[string]any]
	each := func(part func(p *exec.Pair) any) method {
		return func(_ map[string]any, self *exec.Value, _ *exec.VarArgs) (any, error) {
			out := list{}
			for _, p := range pairsOf(self) {
				out = append(out, part(p))
			}
			return out, nil
		}
	}
	return map[string]method{
		"items":  each(func(p *exec.Pair) any { return pairOf(p) }),
		"keys":   each(func(p *exec.Pair) any { return p.Key.Interface() }),
		"values": each(func(p *exec.Pair) any { return p.Value.Interface() }),
		"get": func(_ map[string]any, self *exec.Value, params *exec.VarArgs) (any, error) {
			if n := len(params.Args); n < 1 || n > 2 {
				return nil, fmt.Errorf("get: %d arguments: want 1 or 2", n)
			}
			for _, p := range pairsOf(self) {
				if p.Key.EqualValueTo(params.Args[0]) {
					return p.Value.Interface(), nil
				}
			}
			if len(params.Args) == 2 {
				return params.Args[1].Interface(), nil
			}
			return nil, nil
		},
		"copy": func(_ map[string]any, self *exec.Value, _ *exec.VarArgs) (any, error) {
			return &exec.Dict{Pairs: pairsOf(self)}, nil
		},
	}
}
