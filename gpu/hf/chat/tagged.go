package chat

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	codeOpen  = "<code>"
	codeClose = "</code>"
)

// fenced opens a fence of code, to the end of its line.
var fenced = regexp.MustCompile("(```+)(?:python|py|starlark)[ \t]*\r?\n")

// tagOf is a tool's tag.
func (s Style) tagOf(tool string) string {
	if tag := s.Tags[tool]; tag != "" {
		return tag
	}
	return tool
}

// shape is the part of a tool's schema by which a body becomes arguments.
type shape struct {
	// text is the argument that a body is, which is a text; "" where a body is JSON.
	text string
	// properties are all arguments.
	properties []string
}

// shapeOf finds the only argument that must be given, or that there is at all, if it is a text.
func shapeOf(t Tool) (s shape) {
	var schema struct {
		Required   []string `json:"required"`
		Properties map[string]struct {
			Type json.RawMessage `json:"type"`
		} `json:"properties"`
	}
	if json.Unmarshal(t.Parameters, &schema) != nil {
		return s
	}
	for name := range schema.Properties {
		s.properties = append(s.properties, name)
	}
	slices.Sort(s.properties)
	name := ""
	switch {
	case len(schema.Required) == 1:
		name = schema.Required[0]
	case len(schema.Required) == 0 && len(s.properties) == 1:
		name = s.properties[0]
	}
	if string(schema.Properties[name].Type) == `"string"` {
		s.text = name
	}
	return s
}

// isArguments reports whether a body is JSON of the tool's arguments, and not the text of a single argument.
func (s shape) isArguments(body string) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(body), &fields) != nil || fields == nil {
		return false
	}
	if s.text == "" {
		return true
	}
	for name := range fields {
		if !slices.Contains(s.properties, name) {
			return false
		}
	}
	return fields[s.text] != nil
}

// argumentsOf are a body's arguments.
func (s shape) argumentsOf(body string) (json.RawMessage, error) {
	body = strings.TrimSpace(body)
	if s.text != "" && !s.isArguments(body) {
		return fmt.Appendf(nil, "{%s: %s}", textJSON(s.text), textJSON(body)), nil
	}
	return objectOf(json.RawMessage(body))
}

// writeBody is a call's body between its tags: the text of its only argument as it is, else JSON in which no tag is spelt.
func (s shape) writeBody(arguments json.RawMessage, readable func(text string) bool) string {
	var fields map[string]json.RawMessage
	var text string
	if json.Unmarshal(arguments, &fields) == nil && len(fields) == 1 && s.text != "" && json.Unmarshal(fields[s.text], &text) == nil &&
		text != "" && strings.TrimSpace(text) == text && !s.isArguments(text) && readable(text) {
		return text
	}
	return strings.ReplaceAll(string(arguments), "</", `<\/`) // a "<" is in a string, or nowhere
}

func toolNamed(name string, tools []Tool) Tool {
	for _, t := range tools {
		if t.Name == name {
			return t
		}
	}
	return Tool{Name: name}
}

// writeTag is a call between its tags.
func (s Style) writeTag(call Call, tools []Tool) string {
	tag := s.tagOf(call.Name)
	body := shapeOf(toolNamed(call.Name, tools)).writeBody(call.Arguments, func(text string) bool { return !strings.Contains(text, "</"+tag+">") })
	return "<" + tag + ">" + body + "</" + tag + ">"
}

// readTags reads the calls between tags of the tools.
func (r *Reply) readTags(text string, s Style, tools []Tool) {
	for {
		first, tool := len(text), -1
		for i, t := range tools {
			if at := strings.Index(text, "<"+s.tagOf(t.Name)+">"); at >= 0 && at < first {
				first, tool = at, i
			}
		}
		r.Content += text[:first]
		if tool < 0 {
			return
		}
		tag := s.tagOf(tools[tool].Name)
		body, after, closed := strings.Cut(text[first+len(tag)+2:], "</"+tag+">")
		if !closed {
			r.addFault("the tag " + tag + " is not closed")
			return
		}
		r.closed = true
		arguments, err := shapeOf(tools[tool]).argumentsOf(body)
		if err != nil {
			r.addFault(fmt.Sprintf("what stands in the tag %s is %v", tag, err))
		} else {
			r.Calls = append(r.Calls, Call{Name: tools[tool].Name, Arguments: arguments})
		}
		text = after
	}
}

// codeTool is the tool that runs code.
func (s Style) codeTool(tools []Tool) (Tool, bool) {
	for _, t := range tools {
		if t.Name == s.Tool || s.Tool == "" {
			return t, true
		}
	}
	return Tool{Name: s.Tool}, false
}

// codeKey is the argument that holds the code.
func codeKey(t Tool) string {
	if key := shapeOf(t).text; key != "" {
		return key
	}
	return "code"
}

// writeCode is a call of the tool that runs code: in a fence that no line of the code closes.
func (s Style) writeCode(call Call, tools []Tool) string {
	tool, _ := s.codeTool(tools)
	var fields map[string]json.RawMessage
	var code string
	if json.Unmarshal(call.Arguments, &fields) != nil || json.Unmarshal(fields[codeKey(tool)], &code) != nil {
		code = string(call.Arguments)
	}
	fence := "```"
	for strings.Contains(code, fence) {
		fence += "`"
	}
	text := fence + "python\n" + code + "\n" + fence + "\n"
	if s.Format == FormatCode {
		return codeOpen + "\n" + text + codeClose
	}
	return text
}

// readCode reads the code of a turn, with all that stands in it, as calls of the tool that runs it.
func (r *Reply) readCode(text string, s Style, tools []Tool) {
	tool, there := s.codeTool(tools)
	if !there {
		r.Content = text
		return
	}
	for {
		before, body, after, fault := cutCode(text, s.Format)
		r.Content += before
		switch {
		case fault != "":
			r.addFault(fault)
			return
		case body == nil:
			return
		}
		r.closed = true
		r.Calls = append(r.Calls, Call{Name: tool.Name, Arguments: fmt.Appendf(nil, "{%s: %s}", textJSON(codeKey(tool)), textJSON(*body))})
		text = after
	}
}

// cutCode takes the first code out of a text; body is nil where there is none.
func cutCode(text string, format Format) (before string, body *string, after, fault string) {
	if format == FormatFence {
		return cutFence(text)
	}
	before, rest, ok := strings.Cut(text, codeOpen)
	if !ok {
		return text, nil, "", ""
	}
	if lead, code, tail, fault := cutFence(rest); code != nil && fault == "" && strings.TrimSpace(lead) == "" {
		if after, closed := strings.CutPrefix(strings.TrimSpace(tail), codeClose); closed {
			return before, code, after, ""
		}
	}
	code, after, closed := strings.Cut(rest, codeClose)
	if !closed {
		return before, nil, "", "the tag code is not closed"
	}
	code = strings.Trim(code, "\n")
	return before, &code, after, ""
}

// cutFence takes the first fence of code out of a text. A fence is closed by a line of as many backticks, or more.
func cutFence(text string) (before string, body *string, after, fault string) {
	at := fenced.FindStringSubmatchIndex(text)
	if at == nil {
		return text, nil, "", ""
	}
	fence := text[at[2]:at[3]]
	before, rest := text[:at[0]], text[at[1]:]
	for from := 0; from <= len(rest); {
		line, _, more := strings.Cut(rest[from:], "\n")
		if ticks := strings.TrimSpace(line); len(ticks) >= len(fence) && strings.Trim(ticks, "`") == "" {
			code := strings.TrimSuffix(rest[:from], "\n")
			return before, &code, rest[from+len(line):], ""
		}
		if !more {
			break
		}
		from += len(line) + 1
	}
	return before, nil, "", "the fence of code is not closed"
}

// pauseTexts are the texts at which a turn pauses for a tool's result.
func (s Style) pauseTexts(tools []Tool) (out []string) {
	switch s.Format {
	case FormatTag:
		for _, t := range tools {
			out = append(out, "</"+s.tagOf(t.Name)+">")
		}
	case FormatCode:
		if _, there := s.codeTool(tools); there {
			out = []string{codeClose}
		}
	case FormatFence:
		if _, there := s.codeTool(tools); there {
			out = []string{"\n```\n"}
		}
	}
	return out
}

// toolInstructions is the part of the system message that explains how tools are called; "" where nothing needs explaining.
func (s Style) toolInstructions(tools []Tool) string {
	if s.Untold || len(tools) == 0 {
		return ""
	}
	back := fmt.Sprintf("comes back between <%[1]s> and </%[1]s>.", s.resultTag())
	if s.Format != FormatTag {
		tool, there := s.codeTool(tools)
		if !there {
			return ""
		}
		form := "```python\n...\n```"
		if s.Format == FormatCode {
			form = codeOpen + "\n" + form + "\n" + codeClose
		}
		return strings.TrimSpace("Code that you write so is run, and what it shows " + back + "\n" + form + "\n" + tool.Description)
	}
	lines := []string{"You can call tools in their tags, and what they say " + back}
	for _, t := range tools {
		shape := shapeOf(t)
		body := shape.text
		if body == "" {
			body = "JSON of " + strings.Join(shape.properties, ", ")
		}
		tag := s.tagOf(t.Name)
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("<%s>%s</%s> %s", tag, body, tag, t.Description)))
	}
	return strings.Join(lines, "\n")
}

// templateMessages are messages for a template that has neither tools nor their results.
func (c *Chat) templateMessages(messages []Message, tools []Tool) []Message {
	var out []Message
	for _, m := range messages {
		switch {
		case m.Role == ToolRole:
			text := "<" + c.style.resultTag() + ">\n" + c.style.breakTags(m.Content, tools) + "\n</" + c.style.resultTag() + ">"
			if n := len(out); n > 0 && out[n-1].Role == ToolRole {
				out[n-1].Content += "\n" + text
				continue
			}
			out = append(out, Message{Role: ToolRole, Content: text})
			continue
		case len(m.Calls) > 0:
			m.Content = strings.TrimSpace(m.Content + "\n" + c.Write(m.Calls, tools...))
			m.Calls, m.parts = nil, nil
		}
		out = append(out, m)
	}
	for i := range out {
		if out[i].Role == ToolRole {
			out[i].Role = User
		}
	}
	text := c.style.toolInstructions(tools)
	switch {
	case text == "":
	case len(out) > 0 && out[0].Role == System:
		out[0].Content = strings.TrimSpace(out[0].Content + "\n\n" + text)
	default:
		out = slices.Insert(out, 0, Message{Role: System, Content: text})
	}
	return out
}

// breakTags is a tool's result in which the tags that a turn is read by are broken up: it must not look like its own end, or
// like a call of the policy's.
func (s Style) breakTags(text string, tools []Tool) string {
	tags := []string{s.resultTag()}
	switch s.Format {
	case FormatTag:
		for _, t := range tools {
			tags = append(tags, s.tagOf(t.Name))
		}
	case FormatCode:
		tags = append(tags, "code")
	}
	for _, tag := range tags {
		text = strings.NewReplacer("<"+tag+">", "< "+tag+">", "</"+tag+">", "< /"+tag+">").Replace(text)
	}
	return text
}
