package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/internal/openai"
)

// responsesBody is a request of OpenAI's responses.
type responsesBody struct {
	openai.Shaping
	Model              string            `json:"model"`
	Input              json.RawMessage   `json:"input"`
	Instructions       string            `json:"instructions"`
	PreviousResponseID string            `json:"previous_response_id"`
	MaxOutputTokens    *int              `json:"max_output_tokens"`
	Tools              []json.RawMessage `json:"tools"`
	ToolChoice         json.RawMessage   `json:"tool_choice"`
	Stream             bool              `json:"stream"`
	Background         bool              `json:"background"`
	Text               *struct {
		Format    *openai.ResponseFormat `json:"format"`
		Verbosity json.RawMessage        `json:"verbosity"`
	} `json:"text"`
	ParallelToolCalls *bool           `json:"parallel_tool_calls"`
	Conversation      json.RawMessage `json:"conversation"`
	Prompt            json.RawMessage `json:"prompt"`

	// These change nothing: max_tool_calls bounds the tools of OpenAI's own servers.
	BackgroundOptions json.RawMessage `json:"background_options"`
	ContextManagement json.RawMessage `json:"context_management"`
	Include           json.RawMessage `json:"include"`
	MaxToolCalls      json.RawMessage `json:"max_tool_calls"`
	Reasoning         json.RawMessage `json:"reasoning"`
	StreamOptions     json.RawMessage `json:"stream_options"`
	TopLogprobs       json.RawMessage `json:"top_logprobs"`
	Truncation        json.RawMessage `json:"truncation"`
	ticketed
}

// newRequest returns the request as messages, after the messages of the session's response that it goes on from.
func (b *responsesBody) newRequest(s *Session) (*request, error) {
	if b.Text != nil {
		b.ResponseFormat = b.Text.Format
	}
	if err := b.checkSupported(); err != nil {
		return nil, err
	}
	var messages []chat.Message
	if b.PreviousResponseID != "" {
		before, ok := s.earlierRequest(strings.TrimPrefix(b.PreviousResponseID, "resp_"))
		if !ok {
			return nil, openai.BadRequest("invalid_parameter", "previous_response_id: %.80q is no response of this episode", b.PreviousResponseID)
		}
		messages = slices.Clone(before.messages[before.instructions:])
	}
	own := 0
	if b.Instructions != "" {
		own = 1
		messages = slices.Insert(messages, 0, chat.Message{Role: chat.System, Content: b.Instructions})
	}
	said, err := parseInput(b.Input)
	if err != nil {
		return nil, err
	}
	tools, must, err := readTools(b.Tools, b.ToolChoice)
	if err != nil {
		return nil, err
	}
	r := &request{messages: append(messages, said...), tools: tools, single: allowsOneCall(b.ParallelToolCalls), mustCall: must, instructions: own}
	return boundRequest(r, "max_output_tokens", b.MaxOutputTokens)
}

// checkSupported names a field of the request that is not supported; nil where all are.
func (b *responsesBody) checkSupported() error {
	if err := b.Shaping.Refused(); err != nil {
		return err
	}
	if err := b.Media.Refused(); err != nil {
		return err
	}
	switch {
	case b.Background:
		return openai.BadRequest("unsupported_parameter", "background: a response is given in the answer to its request")
	case openai.Given(b.Conversation):
		return openai.BadRequest("unsupported_parameter", "conversation: none are kept here; go on by previous_response_id or by the whole input")
	case openai.Given(b.Prompt):
		return openai.BadRequest("unsupported_parameter", "prompt: none are kept here; write instructions and input")
	}
	return nil
}

// inputItem is an item of a request's input.
type inputItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

// parseInput returns the messages of an input: a text, or a list of items. Calls that follow a message of the assistant are that message's.
func parseInput(raw json.RawMessage) ([]chat.Message, error) {
	var text string
	var items []inputItem
	switch {
	case len(raw) == 0:
		return nil, openai.BadRequest("missing_parameter", "input: is missing")
	case json.Unmarshal(raw, &text) == nil:
		return []chat.Message{{Role: chat.User, Content: text}}, nil
	}
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, openai.BadRequest("invalid_parameter", "input: want text or a list of items: %v", err)
	}
	var out []chat.Message
	for i, item := range items {
		switch item.Type {
		case "", "message":
			content, err := joinParts(item.Content, "input_text", "output_text", "text")
			if err != nil {
				return nil, openai.BadRequest("invalid_parameter", "input[%d].content: %v", i, err)
			}
			role := item.Role
			switch role {
			case "developer":
				role = chat.System
			case chat.System, chat.User, chat.Assistant:
			default:
				return nil, openai.BadRequest("invalid_parameter", "input[%d].role is %.40q: want system, developer, user or assistant", i, item.Role)
			}
			out = append(out, chat.Message{Role: role, Content: content})
		case "function_call":
			if !isObject([]byte(item.Arguments)) || item.Name == "" {
				return nil, openai.BadRequest("invalid_parameter", "input[%d]: want a name, and arguments that are a JSON object as text", i)
			}
			if len(out) == 0 || out[len(out)-1].Role != chat.Assistant {
				out = append(out, chat.Message{Role: chat.Assistant})
			}
			last := &out[len(out)-1]
			last.Calls = append(last.Calls, chat.Call{ID: item.CallID, Name: item.Name, Arguments: json.RawMessage(item.Arguments)})
		case "function_call_output":
			output, err := joinParts(item.Output, "input_text", "output_text", "text")
			if err != nil {
				return nil, openai.BadRequest("invalid_parameter", "input[%d].output: %v", i, err)
			}
			out = append(out, chat.Message{Role: chat.ToolRole, CallID: item.CallID, Content: output})
		case "reasoning": // the policy's own, which its context holds as it was sampled
		default:
			return nil, openai.BadRequest("unsupported_parameter", "input[%d].type is %.40q: want message, function_call, function_call_output or reasoning", i, item.Type)
		}
	}
	return out, nil
}

func isObject(raw []byte) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '{' && json.Valid(raw)
}

// joinParts returns a content that is a text, or a list of parts of these types.
func joinParts(raw json.RawMessage, types ...string) (string, error) {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var list []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return "", err
	}
	for i, part := range list {
		known := false
		for _, t := range types {
			known = known || part.Type == t
		}
		if !known {
			return "", openai.BadRequest("unsupported_parameter", "part %d is %.40q: only text is taken", i, part.Type)
		}
		text += part.Text
	}
	return text, nil
}

type response struct {
	ID                string          `json:"id"`
	Object            string          `json:"object"`
	CreatedAt         int64           `json:"created_at"`
	Status            string          `json:"status"`
	Error             any             `json:"error"`
	IncompleteDetails any             `json:"incomplete_details"`
	Instructions      *string         `json:"instructions"`
	Model             string          `json:"model"`
	Output            []any           `json:"output"`
	ParallelToolCalls bool            `json:"parallel_tool_calls"`
	PreviousID        *string         `json:"previous_response_id"`
	ToolChoice        string          `json:"tool_choice"`
	Tools             []any           `json:"tools"`
	Temperature       *float64        `json:"temperature"`
	TopP              float64         `json:"top_p"`
	Metadata          map[string]any  `json:"metadata"`
	Usage             *responsesUsage `json:"usage"`
}

type responsesUsage struct {
	InputTokens        int            `json:"input_tokens"`
	InputTokensDetails map[string]int `json:"input_tokens_details"`
	OutputTokens       int            `json:"output_tokens"`
	OutputDetails      map[string]int `json:"output_tokens_details"`
	TotalTokens        int            `json:"total_tokens"`
}

type outputMessage struct {
	Type    string       `json:"type"`
	ID      string       `json:"id"`
	Status  string       `json:"status"`
	Role    string       `json:"role"`
	Content []outputText `json:"content"`
}

type outputText struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations []any  `json:"annotations"`
}

type outputCall struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	Status    string `json:"status"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// asResponse returns a reply in the words of the responses API.
func (r *reply) asResponse(b *responsesBody) *response {
	out := &response{
		ID: "resp_" + r.id, Object: "response", CreatedAt: r.created, Status: "completed", Model: b.Model, Output: []any{}, Tools: []any{},
		ParallelToolCalls: !allowsOneCall(b.ParallelToolCalls), ToolChoice: "auto", TopP: 1, Metadata: map[string]any{},
		Usage: &responsesUsage{
			InputTokens: r.promptTokens, OutputTokens: r.sampled, TotalTokens: r.promptTokens + r.sampled,
			InputTokensDetails: map[string]int{"cached_tokens": 0}, OutputDetails: map[string]int{"reasoning_tokens": 0},
		},
	}
	if b.PreviousResponseID != "" {
		out.PreviousID = &b.PreviousResponseID
	}
	if b.Instructions != "" {
		out.Instructions = &b.Instructions
	}
	if r.finish == finishLength {
		out.Status, out.IncompleteDetails = "incomplete", map[string]string{"reason": "max_output_tokens"}
	}
	if r.content != "" || len(r.calls) == 0 {
		out.Output = append(out.Output, outputMessage{
			Type: "message", ID: "msg_" + r.id, Status: out.Status, Role: chat.Assistant,
			Content: []outputText{{Type: "output_text", Text: r.content, Annotations: []any{}}},
		})
	}
	for _, call := range r.calls {
		out.Output = append(out.Output, outputCall{
			Type: "function_call", ID: "fc_" + call.ID, Status: "completed", CallID: call.ID, Name: call.Name, Arguments: string(call.Arguments),
		})
	}
	return out
}

// wantsStream reports whether the client asks for events.
func (b *responsesBody) wantsStream() bool { return b.Stream }

// writeAnswer writes the reply in the words of the responses API.
func (b *responsesBody) writeAnswer(w http.ResponseWriter, r *reply) error {
	return writeWhole(w, r.asResponse(b))
}

// writeFailure writes an error as the last event.
func (*responsesBody) writeFailure(out *openai.Events, e *openai.Error) error {
	return out.SendNamed("error", map[string]any{
		"type": "error", "code": e.Code, "message": e.Message, "param": nil, "sequence_number": 0, "error": e.Body().Error,
	})
}

// writeStream writes the reply as the events of the responses API.
func (b *responsesBody) writeStream(out *openai.Events, r *reply) error {
	whole := r.asResponse(b)
	number := 0
	var failed error
	send := func(name string, fields map[string]any) {
		if failed != nil {
			return
		}
		fields["type"], fields["sequence_number"] = name, number
		number++
		failed = out.SendNamed(name, fields)
	}
	begun := *whole
	begun.Status, begun.Output, begun.Usage, begun.IncompleteDetails = "in_progress", []any{}, nil, nil
	send("response.created", map[string]any{"response": begun})
	send("response.in_progress", map[string]any{"response": begun})
	for i, item := range whole.Output {
		at := func(id string, more map[string]any) map[string]any {
			more["output_index"], more["item_id"] = i, id
			return more
		}
		switch item := item.(type) {
		case outputMessage:
			first := item
			first.Status, first.Content = "in_progress", []outputText{}
			part := item.Content[0]
			send("response.output_item.added", map[string]any{"output_index": i, "item": first})
			send("response.content_part.added", at(item.ID, map[string]any{"content_index": 0, "part": outputText{Type: part.Type, Annotations: []any{}}}))
			send("response.output_text.delta", at(item.ID, map[string]any{"content_index": 0, "delta": part.Text, "logprobs": []any{}}))
			send("response.output_text.done", at(item.ID, map[string]any{"content_index": 0, "text": part.Text, "logprobs": []any{}}))
			send("response.content_part.done", at(item.ID, map[string]any{"content_index": 0, "part": part}))
		case outputCall:
			first := item
			first.Status, first.Arguments = "in_progress", ""
			send("response.output_item.added", map[string]any{"output_index": i, "item": first})
			send("response.function_call_arguments.delta", at(item.ID, map[string]any{"delta": item.Arguments}))
			send("response.function_call_arguments.done", at(item.ID, map[string]any{"name": item.Name, "arguments": item.Arguments}))
		}
		send("response.output_item.done", map[string]any{"output_index": i, "item": item})
	}
	send("response."+whole.Status, map[string]any{"response": whole})
	return failed
}
