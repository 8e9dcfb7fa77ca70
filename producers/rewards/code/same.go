package code

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/producers/data"
)

// tolerance is how far a number with a fraction may be off, relative to the greater of it and 1.
const tolerance = 1e-6

// sameOutput compares the output of a program with the expected output: line by line without the white space at their ends and without
// empty lines at the end of all, and where that differs word by word, a word with a fraction as a number.
func sameOutput(said, want string) bool {
	if tidyOutput(said) == tidyOutput(want) {
		return true
	}
	a, b := splitLines(said), splitLines(want)
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		words, wanted := strings.Fields(a[i]), strings.Fields(b[i])
		if len(words) != len(wanted) {
			return false
		}
		for j := range words {
			if words[j] != wanted[j] && !sameFraction(words[j], wanted[j]) {
				return false
			}
		}
	}
	return true
}

// tidyOutput removes the white space at the ends of the lines and of a text.
func tidyOutput(text string) string { return strings.Join(splitLines(text), "\n") }

// splitLines splits a text into its lines.
func splitLines(text string) []string {
	out := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := range out {
		out[i] = strings.TrimRight(out[i], " \t\r")
	}
	for len(out) > 0 && out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	return out
}

// sameFraction compares two words as numbers, where the wanted number has a fraction: whole numbers are compared to the letter.
func sameFraction(word, want string) bool {
	if !strings.ContainsAny(want, ".eE") {
		return false
	}
	a, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return false
	}
	b, err := strconv.ParseFloat(want, 64)
	return err == nil && isNear(a, b)
}

// isNear reports whether two numbers are equal but for rounding.
func isNear(a, b float64) bool {
	return a == b || !math.IsInf(a, 0) && !math.IsInf(b, 0) && math.Abs(a-b) <= tolerance*max(1, math.Abs(a), math.Abs(b))
}

// wrapping is how a data set writes the values that functions are to return.
type wrapping struct {
	list bool // each in a list of its own
	text bool // each as a text of JSON, as the arguments are
}

// wrappingOf is how a prompt's outputs are written: they are wrapped where all of them are. A single result could not be distinguished from
// a list or a text that the function is to return.
func wrappingOf(tests []data.Test) wrapping {
	w := wrapping{list: len(tests) > 0, text: len(tests) > 0}
	for _, t := range tests {
		out, ok := decodeJSON(t.Output)
		list, isList := out.([]any)
		w.list = w.list && ok && isList && len(list) == 1
		text, isText := out.(string)
		_, inner := decodeJSON([]byte(text))
		in, _ := decodeJSON(t.Input)
		_, inText := in.(string)
		w.text = w.text && isText && inner && inText
	}
	return w
}

// sameResult compares the result of a function with the expected result.
func (w wrapping) sameResult(value, want json.RawMessage) bool {
	v, ok := decodeJSON(value)
	if !ok {
		return false
	}
	wanted, ok := decodeJSON(want)
	if !ok {
		return false
	}
	if sameValue(v, wanted) {
		return true
	}
	if list, ok := wanted.([]any); ok && w.list && len(list) == 1 {
		return sameValue(v, list[0])
	}
	if text, ok := wanted.(string); ok && w.text {
		inner, ok := decodeJSON([]byte(text))
		return ok && sameValue(v, inner)
	}
	return false
}

// decodeJSON decodes JSON.
func decodeJSON(raw json.RawMessage) (any, bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err == nil && !d.More()
}

// sameValue compares two JSON values.
func sameValue(a, b any) bool {
	switch b := b.(type) {
	case json.Number:
		n, ok := a.(json.Number)
		return ok && (n == b || sameNumber(n, b))
	case []any:
		list, ok := a.([]any)
		if !ok || len(list) != len(b) {
			return false
		}
		for i := range b {
			if !sameValue(list[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		fields, ok := a.(map[string]any)
		if !ok || len(fields) != len(b) {
			return false
		}
		for k, v := range b {
			other, there := fields[k]
			if !there || !sameValue(other, v) {
				return false
			}
		}
		return true
	}
	return a == b
}

// sameNumber compares numbers, at least one with a fraction: whole numbers are compared to the letter.
func sameNumber(a, b json.Number) bool {
	if !strings.ContainsAny(a.String()+b.String(), ".eE") {
		return false
	}
	x, err := a.Float64()
	if err != nil {
		return false
	}
	y, err := b.Float64()
	return err == nil && isNear(x, y)
}

// programText returns a test's input or output as a program reads and prints it: a text as it is, a list line by line.
func programText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && list != nil {
		parts := make([]string, len(list))
		for i, e := range list {
			parts[i] = programText(e)
		}
		return strings.Join(parts, "\n")
	}
	return string(raw)
}

// callArguments returns a test's input as a function takes it: a list as it is, a text of JSON line by line, anything else as the only
// argument.
func callArguments(t data.Test) []json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(t.Input, &list) == nil && list != nil {
		return list
	}
	var text string
	if json.Unmarshal(t.Input, &text) == nil {
		for line := range strings.Lines(strings.TrimSpace(text)) {
			if line = strings.TrimSpace(line); !json.Valid([]byte(line)) {
				return []json.RawMessage{t.Input}
			}
			list = append(list, json.RawMessage(line))
		}
		if list != nil {
			return list
		}
	}
	return []json.RawMessage{t.Input}
}
