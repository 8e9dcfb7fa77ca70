package consumers

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/gpu/hf/template"
)

// WithChat has chats written by a model's own template, which also shows tools and reads calls of them; nil leaves o as it is.
func (o *OpenAI) WithChat(c *chat.Chat) *OpenAI {
	o.chat = c
	return o
}

// toolCall is a call of a tool, in a message that comes in or goes out.
type toolCall struct {
	Index    *int         `json:"index,omitempty"` // in what is streamed
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function calledByName `json:"function"`
}

type calledByName struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// context is a chat as token ids, and whether the answer may call tools. Without a template messages are joined as text.
func (o *OpenAI) context(b *chatBody) (ids []int32, calls bool, err error) {
	if o.chat == nil {
		return o.joined(b.Messages), false, nil
	}
	tools, err := o.tools(b)
	if err != nil {
		return nil, false, err
	}
	messages, err := spoken(b.Messages)
	if err != nil {
		return nil, false, err
	}
	ids, err = o.chat.Prompt(messages, tools)
	switch {
	case errors.Is(err, template.ErrRaised):
		return nil, false, badRequest("invalid_parameter", "messages: %v", err)
	case err != nil:
		return nil, false, badRequest("invalid_parameter", "messages: the model's chat template cannot write them: %v", err)
	}
	return ids, len(tools) > 0, nil
}

// joined is a chat as text. Without a way to write chats there is no control token in it, whatever messages spell.
func (o *OpenAI) joined(messages []Message) []int32 {
	if o.template != nil {
		return o.tokenizer.Encode(o.template(messages))
	}
	text := JoinMessages(messages)
	if t, ok := o.tokenizer.(interface {
		EncodeText(text string) []int32
		Special(id int32) bool
	}); ok {
		return t.EncodeText(text)
	}
	return o.tokenizer.Encode(text)
}

// tools takes the tools out of a request.
func (o *OpenAI) tools(b *chatBody) ([]chat.Tool, error) {
	var choice string
	if len(b.ToolChoice) > 0 && string(b.ToolChoice) != "null" && (json.Unmarshal(b.ToolChoice, &choice) != nil || choice != "auto" && choice != "none") {
		return nil, badRequest("unsupported_parameter", "tool_choice is %.40s: nothing holds the policy to a call; use auto or none", b.ToolChoice)
	}
	var out []chat.Tool
	for i, raw := range b.Tools {
		var t struct {
			Type     string `json:"type"`
			Function struct {
				Name        string          `json:"name"`
				Description string          `json:"description"`
				Parameters  json.RawMessage `json:"parameters"`
			} `json:"function"`
		}
		if err := json.Unmarshal(raw, &t); err != nil || t.Type != "function" || t.Function.Name == "" {
			return nil, badRequest("invalid_parameter", `tools[%d]: want {"type": "function", "function": {"name": ..., "parameters": {...}}}`, i)
		}
		out = append(out, chat.Tool{Name: t.Function.Name, Description: t.Function.Description, Parameters: t.Function.Parameters})
	}
	if b.Tools = nil; choice == "none" || len(out) == 0 {
		return nil, nil
	}
	if err := o.chat.Tools(); err != nil {
		return nil, badRequest("unsupported_parameter", "tools: %v", err)
	}
	return out, nil
}

// spoken are messages as the template takes them.
func spoken(messages []Message) ([]chat.Message, error) {
	var out []chat.Message
	for i, m := range messages {
		next := chat.Message{Role: m.Role, Content: string(m.Content), Name: m.Name, CallID: m.ToolCallID}
		switch m.Role {
		case chat.System, chat.User, chat.Assistant, chat.ToolRole:
		case "developer":
			next.Role = chat.System
		default:
			return nil, badRequest("invalid_parameter", "messages[%d].role is %.40q: want system, user, assistant or tool", i, m.Role)
		}
		for k, call := range m.ToolCalls {
			arguments := strings.TrimSpace(call.Function.Arguments)
			if arguments == "" {
				arguments = "{}"
			}
			if !json.Valid([]byte(arguments)) || arguments[0] != '{' || call.Function.Name == "" {
				return nil, badRequest("invalid_parameter", "messages[%d].tool_calls[%d].function: want a name, and arguments that are a JSON object as text", i, k)
			}
			next.Calls = append(next.Calls, chat.Call{ID: call.ID, Name: call.Function.Name, Arguments: json.RawMessage(arguments)})
		}
		out = append(out, next)
	}
	return out, nil
}

// message is an answer as a message; calls are read out of it where there are tools.
func (o *OpenAI) message(a *answer, tools bool) *chatMessage {
	m := &chatMessage{Role: "assistant", Content: a.text}
	if !tools || a.finish != "stop" {
		return m
	}
	reply := o.chat.Parse(a.text)
	if len(reply.Calls) == 0 || reply.Fault != "" {
		return m // what is no call is text
	}
	a.finish, m.Content = "tool_calls", reply.Content
	for i, call := range reply.Calls {
		m.ToolCalls = append(m.ToolCalls, toolCall{
			ID: fmt.Sprintf("call_%s_%d", strings.TrimPrefix(a.id, "chatcmpl-"), i), Type: "function",
			Function: calledByName{call.Name, string(call.Arguments)},
		})
	}
	return m
}
