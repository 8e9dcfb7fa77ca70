package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/chat"
)

// TextList is a string or a list of strings.
type TextList []string

// UnmarshalJSON takes null as the empty list.
func (t *TextList) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`"`)) {
		*t = make(TextList, 1)
		return json.Unmarshal(data, &(*t)[0])
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// Message is a message of a conversation.
type Message struct {
	Role    string      `json:"role"`
	Content ContentText `json:"content"`
	// Name is a tool's, ToolCallID the call that its message answers, and ToolCalls are an assistant's: a chat template shows them.
	Name       string     `json:"name"`
	ToolCallID string     `json:"tool_call_id"`
	ToolCalls  []ToolCall `json:"tool_calls"`
}

// UnmarshalJSON reads the fields that a template can show; the policy sees no others.
func (m *Message) UnmarshalJSON(data []byte) error {
	type plain Message
	return json.Unmarshal(data, (*plain)(m))
}

// ContentText is a string, or a list of parts of which only text is taken.
type ContentText string

// UnmarshalJSON joins text parts as they stand.
func (c *ContentText) UnmarshalJSON(data []byte) error {
	if !bytes.HasPrefix(data, []byte("[")) {
		return json.Unmarshal(data, (*string)(c))
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	*c = ""
	for i, p := range parts {
		if p.Type != "text" {
			return BadRequest("unsupported_parameter", "messages: part %d of a content is %q: only text is taken", i, p.Type)
		}
		*c += ContentText(p.Text)
	}
	return nil
}

// ToolCall is a call of a tool, in a message that comes in or goes out.
type ToolCall struct {
	Index    *int     `json:"index,omitempty"` // in streams
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function Function `json:"function"`
}

// Function is the function of a call: its arguments are JSON as text.
type Function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Spoken are messages as the template takes them.
func Spoken(messages []Message) ([]chat.Message, error) {
	var out []chat.Message
	for i, m := range messages {
		next := chat.Message{Role: m.Role, Content: string(m.Content), Name: m.Name, CallID: m.ToolCallID}
		switch m.Role {
		case chat.System, chat.User, chat.Assistant, chat.ToolRole:
		case "developer":
			next.Role = chat.System
		default:
			return nil, BadRequest("invalid_parameter", "messages[%d].role is %.40q: want system, user, assistant or tool", i, m.Role)
		}
		for k, call := range m.ToolCalls {
			arguments := strings.TrimSpace(call.Function.Arguments)
			if arguments == "" {
				arguments = "{}"
			}
			if !json.Valid([]byte(arguments)) || arguments[0] != '{' || call.Function.Name == "" {
				return nil, BadRequest("invalid_parameter", "messages[%d].tool_calls[%d].function: want a name, and arguments that are a JSON object as text", i, k)
			}
			next.Calls = append(next.Calls, chat.Call{ID: call.ID, Name: call.Function.Name, Arguments: json.RawMessage(arguments)})
		}
		out = append(out, next)
	}
	return out, nil
}

// Join is the chat template of a model that was trained on plain running text: the contents in order with a space between them,
// and no roles.
func Join(messages []Message) string {
	texts := make([]string, len(messages))
	for i, m := range messages {
		texts[i] = string(m.Content)
	}
	return strings.Join(texts, " ")
}
