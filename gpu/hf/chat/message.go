package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// The roles of a conversation.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
	ToolRole  = "tool"
)

// Roles are the roles that a message can have. A template writes any other role as it is, into text that the model takes for
// control.
func Roles() []string { return []string{System, User, Assistant, ToolRole} }

// Message is a message of a conversation.
type Message struct {
	// Role is system, user, assistant or tool.
	Role string
	// Content is the text: of an assistant, as it was sampled, but for its thoughts and calls where the template takes these apart.
	Content string
	// Reasoning is an assistant's thoughts, for templates that take them apart from Content, as gpt-oss's does. Other templates
	// leave it out.
	Reasoning string
	// Calls are an assistant's calls of tools, where they are not part of Content.
	Calls []Call
	// CallID and Name name the call that a tool's message answers, and its tool. Both may be "".
	CallID, Name string

	parts []part // of Content, where a tool's words stand in it; nil where all is the role's own
}

// part is a text and the role whose text it is.
type part struct{ role, text string }

// Call is a call of a tool.
type Call struct {
	// ID names the call; "" where the model's format has no names.
	ID string
	// Name is the tool's.
	Name string
	// Arguments is a JSON object.
	Arguments json.RawMessage
}

// Tool describes a tool to the model.
type Tool struct {
	Name, Description string
	// Parameters is the JSON schema of the arguments, an object; nil is an object without properties.
	Parameters json.RawMessage
}

// textJSON is a JSON string without the escapes of HTML; bytes that are no UTF-8 become U+FFFD.
func textJSON(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string is always encoded
	return bytes.TrimSpace(b.Bytes())
}

// messagesJSON are messages as templates take them. guard is applied to each text.
func messagesJSON(messages []Message, guard func(role, text string) string) (json.RawMessage, error) {
	b := []byte{'['}
	for i, m := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		content := ""
		for _, p := range m.parts {
			content += guard(p.role, p.text)
		}
		if m.parts == nil {
			content = guard(m.Role, m.Content)
		}
		b = fmt.Appendf(b, `{"role":%s,"content":%s`, textJSON(m.Role), textJSON(content))
		if m.Reasoning != "" {
			b = fmt.Appendf(b, `,"thinking":%s`, textJSON(guard(m.Role, m.Reasoning)))
		}
		if m.Name != "" {
			b = fmt.Appendf(b, `,"name":%s`, textJSON(guard(m.Role, m.Name)))
		}
		if m.CallID != "" {
			b = fmt.Appendf(b, `,"tool_call_id":%s`, textJSON(guard(m.Role, m.CallID)))
		}
		if len(m.Calls) > 0 {
			calls, err := callsJSON(m.Calls, guard)
			if err != nil {
				return nil, fmt.Errorf("message %d: %w", i, err)
			}
			b = fmt.Appendf(b, `,"tool_calls":%s`, calls)
		}
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

func callsJSON(calls []Call, guard func(role, text string) string) ([]byte, error) {
	b := []byte{'['}
	for i, c := range calls {
		if i > 0 {
			b = append(b, ',')
		}
		arguments, err := guardObject(c.Arguments, func(text string) string { return guard(User, text) })
		if err != nil {
			return nil, fmt.Errorf("arguments of %s: %w", c.Name, err)
		}
		b = append(b, '{')
		if c.ID != "" {
			b = fmt.Appendf(b, `"id":%s,`, textJSON(guard(User, c.ID)))
		}
		b = fmt.Appendf(b, `"type":"function","function":{"name":%s,"arguments":%s}}`, textJSON(guard(User, c.Name)), arguments)
	}
	return append(b, ']'), nil
}

// toolsJSON are tools as templates take them; nil for none, which templates tell from an empty list.
func toolsJSON(tools []Tool, guard func(role, text string) string) (json.RawMessage, error) {
	if len(tools) == 0 {
		return nil, nil
	}
	b := []byte{'['}
	for i, t := range tools {
		if i > 0 {
			b = append(b, ',')
		}
		parameters := t.Parameters
		if parameters == nil {
			parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		parameters, err := guardObject(parameters, func(text string) string { return guard(User, text) })
		if err != nil {
			return nil, fmt.Errorf("tool %s: parameters: %w", t.Name, err)
		}
		b = fmt.Appendf(b, `{"type":"function","function":{"name":%s,"description":%s,"parameters":%s}}`,
			textJSON(guard(User, t.Name)), textJSON(guard(User, t.Description)), parameters)
	}
	return append(b, ']'), nil
}

// guardObject is a JSON object, compact, with each of its texts changed by guard.
func guardObject(object json.RawMessage, guard func(text string) string) (json.RawMessage, error) {
	trimmed := bytes.TrimSpace(object)
	if !json.Valid(trimmed) || trimmed[0] != '{' {
		return nil, fmt.Errorf("%.40s: want a JSON object", object)
	}
	var out []byte
	for i := 0; i < len(trimmed); {
		if trimmed[i] != '"' {
			if c := trimmed[i]; c != ' ' && c != '\t' && c != '\n' && c != '\r' {
				out = append(out, c)
			}
			i++
			continue
		}
		end := i + 1
		for trimmed[end] != '"' {
			if trimmed[end] == '\\' {
				end++
			}
			end++
		}
		var text string
		if err := json.Unmarshal(trimmed[i:end+1], &text); err != nil {
			return nil, err
		}
		out = append(out, textJSON(guard(text))...)
		i = end + 1
	}
	return out, nil
}
