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
	// Reasoning is the text before </think>, where the template has thoughts, or in harmony's channel analysis. Content is the
	// assistant's text without thoughts and calls.
	Reasoning, Content string
	Calls              []Call
	// Said is the turn as it was sampled, without thoughts and the end token, but with calls and text that only looks like a
	// call. It is for a reader who expects no calls, or who must see why there is none.
	Said string
	// Fault explains why text that begins like a call is none; "" where there is no such text.
	Fault string

	tried  string // the name in a harmony call that cannot be read
	closed bool   // a call has come to its end, readable or not
}

// Parse reads the text of a turn, without the token that ends it. The tools' schemas decide which arguments are texts, in a
// format that writes texts and numbers alike, and which tags are calls. Without tools a value that looks like a number is a
// number.
func (c *Chat) Parse(text string, tools ...Tool) Reply {
	return c.parseText(c.opener+text, tools, func(s string) string { return s })
}

// parseText reads a text; plain undoes the marks in the spellings of control tokens.
func (c *Chat) parseText(text string, tools []Tool, plain func(string) string) (r Reply) {
	if c.style.Format == FormatHarmony {
		r.readHarmony(text, plain)
		return r
	}
	if before, after, ok := strings.Cut(text, closeThink); ok && c.hasThoughts() && c.style.isThought(before, tools) {
		r.Reasoning, text = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(before), "<think>")), after
	}
	r.Said = strings.TrimSpace(text)
	switch c.style.Format {
	case FormatHermes:
		r.readHermes(text)
	case FormatQwen3Coder:
		r.readBetween(text, functionEnd, func(body string) { r.addXML(body, tools) })
	case FormatLlama3:
		r.readJSONCall(text)
	case FormatTag:
		r.readTags(text, c.style, tools)
	case FormatCode, FormatFence:
		r.readCode(text, c.style, tools)
	default:
		r.Content = text
	}
	r.Content = strings.TrimSpace(r.Content)
	return r
}

// ParseIDs is Parse of sampled ids, with or without the end token. In the formats tag, code and fence a call ends the turn too,
// until the tool's result is there.
func (c *Chat) ParseIDs(sampled []int32, tools ...Tool) (r Reply, ended bool) {
	return c.parseSampled(c.opener, sampled, tools)
}

// parseSampled reads the sampled ids of a turn that begins with the text begun.
func (c *Chat) parseSampled(begun string, sampled []int32, tools []Tool) (r Reply, ended bool) {
	if n := len(sampled); n > 0 && slices.Contains(c.ends, sampled[n-1]) {
		ended = true
		if c.style.Format != FormatHarmony { // there the token shows whether it was a call
			sampled = sampled[:n-1]
		}
	}
	text, plain := c.codec.Decode(sampled), func(s string) string { return s }
	if c.style.Format == FormatHarmony {
		text, plain = c.markControlled(sampled)
	}
	r = c.parseText(begun+text, tools, plain)
	return r, ended || c.style.Format.withinTurn() && r.closed
}

// markControlled is the text of ids in which only control tokens have control tokens' spellings. plain restores the text as it
// was.
func (c *Chat) markControlled(ids []int32) (text string, plain func(string) string) {
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
		b.WriteString(guardSpellings(c.codec.Decode(ids[:n]), c.special, mark))
		ids = ids[n:]
	}
	return b.String(), func(s string) string { return removeMark(s, mark) }
}

// readHermes reads calls in JSON. A closing tag within a string of the JSON is part of it.
func (r *Reply) readHermes(text string) {
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
				r.addJSONCall(value, "arguments")
				text = after
				continue
			}
		}
		body, after, ok := strings.Cut(rest, closeCall)
		if !ok {
			r.addFault(openCall + " without " + closeCall)
			return
		}
		r.addJSONCall([]byte(body), "arguments")
		text = after
	}
}

// isThought reports whether the text before </think> is a thought: it opens with <think>, or it holds no call. A call's
// arguments may spell anything.
func (s Style) isThought(before string, tools []Tool) bool {
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

// readBetween finds the calls between their tags and has each read. end is the end of a body that begins a text, len(text) if
// the body does not show it. A closing tag before it is part of the body.
func (r *Reply) readBetween(text string, end func(text string) int, read func(body string)) {
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
				r.addFault(openCall + " without " + closeCall)
				return
			}
			at = 0
		}
		read(rest[:at] + tail)
		text = after
	}
}

// hasThoughts reports whether the template has thoughts.
func (c *Chat) hasThoughts() bool {
	return strings.Contains(c.plain.Source(), closeThink) || strings.Contains(c.tooled.Source(), closeThink)
}

func (r *Reply) readJSONCall(text string) {
	body := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), pythonTag))
	if !strings.HasPrefix(body, "{") || !strings.Contains(body, `"name"`) {
		r.Content = text
		return
	}
	r.addJSONCall([]byte(body), "parameters")
}

func (r *Reply) addFault(text string) {
	if r.Fault == "" {
		r.Fault = text
	}
}

// addJSONCall reads a call whose arguments are under a key.
func (r *Reply) addJSONCall(body []byte, key string) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		r.addFault("the tool call is not a JSON object of name and " + key)
		return
	}
	var call Call
	if err := json.Unmarshal(fields["name"], &call.Name); err != nil || call.Name == "" {
		r.addFault("the tool call has no name")
		return
	}
	arguments, err := objectOf(fields[key])
	if err != nil {
		r.addFault(fmt.Sprintf("the tool call's %s are %v", key, err))
		return
	}
	call.Arguments = arguments
	r.Calls = append(r.Calls, call)
}

// objectOf is a JSON object, which some models write as a string. Without text it is an empty object.
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
