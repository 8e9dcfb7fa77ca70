package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Format is how a model writes calls of tools.
type Format string

// The formats.
const (
	// FormatNone is none that is known.
	FormatNone Format = ""
	// FormatTags is that of Qwen and Hermes: <tool_call>, a JSON object of name and arguments, </tool_call>; as many as there are calls.
	FormatTags Format = "tags"
	// FormatJSON is Llama 3's: the turn is a JSON object of name and parameters.
	FormatJSON Format = "json"
)

const (
	openCall    = "<tool_call>"
	closeCall   = "</tool_call>"
	closeThink  = "</think>"
	pythonTag   = "<|python_tag|>"
	functionTag = "<function="
)

// formatOf is the format that a template shows to the model.
func formatOf(source string) Format {
	switch {
	case strings.Contains(source, functionTag):
		return FormatNone
	case strings.Contains(source, openCall) && strings.Contains(source, "arguments"):
		return FormatTags
	case strings.Contains(source, `"parameters": `) && strings.Contains(source, "ipython"):
		return FormatJSON
	}
	return FormatNone
}

// Write is a turn that makes calls. FormatJSON writes the first alone.
func (f Format) Write(calls []Call) string {
	var parts []string
	for _, call := range calls {
		switch f {
		case FormatTags:
			parts = append(parts, fmt.Sprintf("%s\n{\"name\": %s, \"arguments\": %s}\n%s", openCall, textJSON(call.Name), call.Arguments, closeCall))
		case FormatJSON:
			return fmt.Sprintf(`{"name": %s, "parameters": %s}`, textJSON(call.Name), call.Arguments)
		}
	}
	return strings.Join(parts, "\n")
}

// Reply is an assistant's turn, read.
type Reply struct {
	// Reasoning is what stands before </think>, Content what the assistant says, without both thoughts and calls.
	Reasoning, Content string
	Calls              []Call
	// Fault says why something that begins like a call is none; "" where there is nothing like that.
	Fault string
}

// Parse reads the text of a turn, without the token that ends it.
func (c *Chat) Parse(text string) Reply {
	r := Reply{}
	text = c.opener + text
	if before, after, ok := strings.Cut(text, closeThink); ok {
		r.Reasoning, text = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(before), "<think>")), after
	}
	switch c.format {
	case FormatTags:
		r.tags(text)
	case FormatJSON:
		r.object(text)
	default:
		r.Content = text
	}
	r.Content = strings.TrimSpace(r.Content)
	return r
}

// ParseIDs is Parse of sampled ids, with or without the one that ends the turn.
func (c *Chat) ParseIDs(sampled []int32) (r Reply, ended bool) {
	if n := len(sampled); n > 0 {
		for _, end := range c.ends {
			ended = ended || end == sampled[n-1]
		}
		if ended {
			sampled = sampled[:n-1]
		}
	}
	return c.Parse(c.codec.Decode(sampled)), ended
}

func (r *Reply) tags(text string) {
	for {
		before, rest, ok := strings.Cut(text, openCall)
		r.Content += before
		if !ok {
			return
		}
		body, after, ok := strings.Cut(rest, closeCall)
		if !ok {
			r.fault(openCall + " without " + closeCall)
			return
		}
		r.add([]byte(body), "arguments")
		text = after
	}
}

func (r *Reply) object(text string) {
	body := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), pythonTag))
	if !strings.HasPrefix(body, "{") || !strings.Contains(body, `"name"`) {
		r.Content = text
		return
	}
	r.add([]byte(body), "parameters")
}

func (r *Reply) fault(text string) {
	if r.Fault == "" {
		r.Fault = text
	}
}

// add reads a call, whose arguments are under a key.
func (r *Reply) add(body []byte, key string) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		r.fault("the tool call is not a JSON object of name and " + key)
		return
	}
	var call Call
	if err := json.Unmarshal(fields["name"], &call.Name); err != nil || call.Name == "" {
		r.fault("the tool call has no name")
		return
	}
	arguments, err := objectOf(fields[key])
	if err != nil {
		r.fault(fmt.Sprintf("the tool call's %s are %v", key, err))
		return
	}
	call.Arguments = arguments
	r.Calls = append(r.Calls, call)
}

// objectOf is a JSON object, which some models write as a string; nothing is an empty one.
func objectOf(raw json.RawMessage) (json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	var text string
	if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		raw = bytes.TrimSpace([]byte(text))
	}
	switch {
	case len(raw) == 0, string(raw) == "null":
		return json.RawMessage("{}"), nil
	case raw[0] != '{' || !json.Valid(raw):
		return nil, errors.New("not a JSON object")
	}
	return raw, nil
}
