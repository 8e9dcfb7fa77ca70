package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The parts of a call in FormatQwen3Coder.
const (
	closeFunction  = "</function>"
	parameterTag   = "<parameter="
	closeParameter = "</parameter>"
)

// writeXML writes a call as Qwen3-Coder and Qwen3.5 do.
func writeXML(call Call) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s%s>\n", openCall, functionTag, call.Name)
	for _, field := range fieldsOf(call.Arguments) {
		var text string
		if json.Unmarshal(field.value, &text) != nil {
			text = string(field.value)
		}
		fmt.Fprintf(&b, "%s%s>\n%s\n%s\n", parameterTag, field.name, text, closeParameter)
	}
	return b.String() + closeFunction + "\n" + closeCall
}

type field struct {
	name  string
	value json.RawMessage
}

// fieldsOf are an object's, in its order.
func fieldsOf(object json.RawMessage) (out []field) {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return out
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return out
		}
		out = append(out, field{name.(string), value})
	}
	return out
}

// addXML reads a call. Its values are texts. A value that is JSON of a number, a truth value, null, an object or an array is
// read as such where the tool's schema does not ask for a text.
func (r *Reply) addXML(body string, tools []Tool) {
	body = strings.TrimSpace(body)
	rest, ok := strings.CutPrefix(body, functionTag)
	name, rest, named := strings.Cut(rest, ">")
	if !ok || !named || strings.TrimSpace(name) == "" {
		r.addFault("the tool call is not " + functionTag + "name> with its parameters")
		return
	}
	name = strings.TrimSpace(name)
	rest, closed := strings.CutSuffix(strings.TrimSpace(rest), closeFunction)
	if !closed {
		r.addFault("the tool call has " + functionTag + "name> without " + closeFunction)
		return
	}
	texts := textsOf(name, tools)
	var seen []string
	arguments := []byte{'{'}
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		inner, ok := strings.CutPrefix(rest, parameterTag)
		key, inner, named := strings.Cut(inner, ">")
		value, after, closed := cutValue(inner)
		switch {
		case !ok || !named:
			r.addFault("the tool call's parameters are not " + parameterTag + "name>")
			return
		case !closed:
			r.addFault("the tool call has " + parameterTag + "name> without " + closeParameter)
			return
		case slices.Contains(seen, key):
			r.addFault("the tool call names a parameter twice")
			return
		}
		seen, rest = append(seen, key), after
		value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
		if len(arguments) > 1 {
			arguments = append(arguments, ", "...)
		}
		arguments = fmt.Appendf(arguments, "%s: %s", textJSON(key), valueOf(value, texts[key]))
	}
	r.Calls = append(r.Calls, Call{Name: name, Arguments: append(arguments, '}')})
}

// cutValue is a parameter's value and the text after its end. The end is followed by another parameter or by nothing, since a
// value may spell the end of a parameter.
func cutValue(text string) (value, after string, closed bool) {
	for from := 0; ; {
		at := strings.Index(text[from:], closeParameter)
		if at < 0 {
			return strings.Cut(text, closeParameter)
		}
		at += from
		after = text[at+len(closeParameter):]
		if next := strings.TrimSpace(after); next == "" || strings.HasPrefix(next, parameterTag) {
			return text[:at], after, true
		}
		from = at + len(closeParameter)
	}
}

// functionEnd is where a call's function ends: at the first </function> that </tool_call> follows. len(text) where there is none.
func functionEnd(text string) int {
	for from := 0; ; {
		at := strings.Index(text[from:], closeFunction)
		if at < 0 {
			return len(text)
		}
		from += at + len(closeFunction)
		if strings.HasPrefix(strings.TrimSpace(text[from:]), closeCall) {
			return from
		}
	}
}

// valueOf is a parameter's value in JSON.
func valueOf(text string, isText bool) json.RawMessage {
	raw := bytes.TrimSpace([]byte(text))
	switch string(raw) { // as Python, in which templates are written, spells them
	case "True", "False":
		raw = bytes.ToLower(raw)
	case "None":
		raw = []byte("null")
	}
	if !isText && len(raw) > 0 && raw[0] != '"' && json.Valid(raw) {
		return raw
	}
	return textJSON(text)
}

// textsOf are a tool's parameters of type text, by its schema.
func textsOf(name string, tools []Tool) map[string]bool {
	out := map[string]bool{}
	for _, t := range tools {
		var schema struct {
			Properties map[string]struct {
				Type json.RawMessage `json:"type"`
			} `json:"properties"`
		}
		if t.Name != name || json.Unmarshal(t.Parameters, &schema) != nil {
			continue
		}
		for key, p := range schema.Properties {
			out[key] = string(p.Type) == `"string"`
		}
	}
	return out
}
