package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Reply is an assistant's turn, read.
type Reply struct {
	// Reasoning is what stands before </think>, where the template knows thoughts, or in harmony's channel analysis; Content what the
	// assistant says, without both thoughts and calls.
	Reasoning, Content string
	Calls              []Call
	// Said is the turn as it was sampled, calls and what is like one included, without thoughts and the token that ends it: what is shown to
	// somebody who was promised no calls, or who has to see why there is none.
	Said string
	// Fault says why something that begins like a call is none; "" where there is nothing like that.
	Fault string

	tried  string // the name in a harmony call that cannot be read
	closed bool   // a call has come to its end, readable or not
}

// Parse reads the text of a turn, without the token that ends it. The schemas of the tools tell which arguments are texts in a format
// that writes texts and numbers alike, and which tags are calls; without them what looks like a number is one.
func (c *Chat) Parse(text string, tools ...Tool) Reply {
	return c.parse(c.opener+text, tools, func(s string) string { return s })
}

// parse reads a text; plain undoes what was done to the spellings of control tokens in it.
func (c *Chat) parse(text string, tools []Tool, plain func(string) string) (r Reply) {
	if c.style.Format == FormatHarmony {
		r.harmony(text, plain)
		return r
	}
	if before, after, ok := strings.Cut(text, closeThink); ok && c.thinks() && c.style.thought(before, tools) {
		r.Reasoning, text = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(before), "<think>")), after
	}
	r.Said = strings.TrimSpace(text)
	switch c.style.Format {
	case FormatHermes:
		r.hermes(text)
	case FormatQwen3Coder:
		r.between(text, functionEnd, func(body string) { r.addXML(body, tools) })
	case FormatLlama3:
		r.object(text)
	case FormatTag:
		r.tags(text, c.style, tools)
	case FormatCode, FormatFence:
		r.code(text, c.style, tools)
	default:
		r.Content = text
	}
	r.Content = strings.TrimSpace(r.Content)
	return r
}

// ParseIDs is Parse of sampled ids, with or without the one that ends the turn. In the formats tag, code and fence a call ends the
// turn too, until what the tool says is there.
func (c *Chat) ParseIDs(sampled []int32, tools ...Tool) (r Reply, ended bool) {
	return c.read(c.opener, sampled, tools)
}

// read reads what was sampled after what the turn began with.
func (c *Chat) read(begun string, sampled []int32, tools []Tool) (r Reply, ended bool) {
	if n := len(sampled); n > 0 && slices.Contains(c.ends, sampled[n-1]) {
		ended = true
		if c.style.Format != FormatHarmony { // there the token says whether it was a call
			sampled = sampled[:n-1]
		}
	}
	text, plain := c.codec.Decode(sampled), func(s string) string { return s }
	if c.style.Format == FormatHarmony {
		text, plain = c.controlled(sampled)
	}
	r = c.parse(begun+text, tools, plain)
	return r, ended || c.style.Format.within() && r.closed
}

// controlled is the text of ids in which a control token's spelling is that token, and plain makes it the text as it was.
func (c *Chat) controlled(ids []int32) (text string, plain func(string) string) {
	mark := markFor(c.codec.Decode(ids))
	var b strings.Builder
	for len(ids) > 0 {
		if c.codec.Special(ids[0]) {
			b.WriteString(c.codec.Token(ids[0]))
			ids = ids[1:]
			continue
		}
		n := 1
		for n < len(ids) && !c.codec.Special(ids[n]) {
			n++
		}
		b.WriteString(guard(c.codec.Decode(ids[:n]), c.special, mark))
		ids = ids[n:]
	}
	return b.String(), func(s string) string { return bare(s, mark) }
}

// hermes reads calls in JSON. A closing tag within a string of the JSON is part of it.
func (r *Reply) hermes(text string) {
	for {
		before, rest, ok := strings.Cut(text, openCall)
		r.Content += before
		if !ok {
			return
		}
		decoder := json.NewDecoder(strings.NewReader(rest))
		var value json.RawMessage
		if decoder.Decode(&value) == nil {
			if after, closed := strings.CutPrefix(strings.TrimSpace(rest[decoder.InputOffset():]), closeCall); closed {
				r.add(value, "arguments")
				text = after
				continue
			}
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

// thought says whether the text before </think> is a thought: it is opened as one, or holds no call, whose arguments may spell anything.
func (s Style) thought(before string, tools []Tool) bool {
	openers := []string{openCall}
	switch s.Format {
	case FormatTag:
		openers = nil
		for _, t := range tools {
			openers = append(openers, "<"+s.tagOf(t.Name)+">")
		}
	case FormatLlama3:
		openers = []string{"{"}
	case FormatCode:
		openers = []string{codeOpen}
	case FormatFence:
		if fenced.MatchString(before) {
			openers = []string{"```"}
		}
	}
	return strings.HasPrefix(strings.TrimSpace(before), "<think>") ||
		!slices.ContainsFunc(openers, func(o string) bool { return strings.Contains(before, o) })
}

// between finds the calls between their tags and has each read. end is where a body that begins a text ends, len(text) where it does
// not say; a closing tag before it is part of the body.
func (r *Reply) between(text string, end func(text string) int, read func(body string)) {
	for {
		before, rest, ok := strings.Cut(text, openCall)
		r.Content += before
		if !ok {
			return
		}
		at := end(rest)
		tail, after, ok := strings.Cut(rest[at:], closeCall)
		if !ok {
			if tail, after, ok = strings.Cut(rest, closeCall); !ok {
				r.fault(openCall + " without " + closeCall)
				return
			}
			at = 0
		}
		read(rest[:at] + tail)
		text = after
	}
}

// thinks says whether the template knows of thoughts.
func (c *Chat) thinks() bool {
	return strings.Contains(c.plain.Source(), closeThink) || strings.Contains(c.tooled.Source(), closeThink)
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
