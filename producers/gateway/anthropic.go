package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/internal/openai"
)

// messagesBody is a request of Anthropic's messages.
type messagesBody struct {
	Model         string             `json:"model"`
	System        json.RawMessage    `json:"system"`
	Messages      []anthropicMessage `json:"messages"`
	MaxTokens     *int               `json:"max_tokens"`
	StopSequences []string           `json:"stop_sequences"`
	Stream        bool               `json:"stream"`
	TopP          *float64           `json:"top_p"`
	TopK          *int               `json:"top_k"`
	Tools         []anthropicTool    `json:"tools"`
	ToolChoice    *struct {
		Type                   string `json:"type"`
		Name                   string `json:"name"`
		DisableParallelToolUse bool   `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
	OutputConfig struct {
		Format json.RawMessage `json:"format"`
		Effort json.RawMessage `json:"effort"`
		Budget json.RawMessage `json:"task_budget"`
	} `json:"output_config"`
	OutputFormat json.RawMessage   `json:"output_format"`
	MCPServers   []json.RawMessage `json:"mcp_servers"`
	// Thread keeps a conversation by the id of its last reply, as previous_response_id does.
	Thread *struct {
		Type     string `json:"type"`
		Previous string `json:"previous_message_id"`
	} `json:"thread"`
	anthropicNeutral
}

// anthropicNeutral are settings that do not change sampling: the temperature is the ticket's.
type anthropicNeutral struct {
	Betas               json.RawMessage `json:"betas"`
	BillingPolicy       json.RawMessage `json:"billing_policy"`
	CacheControl        json.RawMessage `json:"cache_control"`
	Compaction          json.RawMessage `json:"compaction"`
	Container           json.RawMessage `json:"container"`
	ContextManagement   json.RawMessage `json:"context_management"`
	Diagnostics         json.RawMessage `json:"diagnostics"`
	FallbackCreditToken json.RawMessage `json:"fallback_credit_token"`
	Fallbacks           json.RawMessage `json:"fallbacks"`
	InferenceGeo        json.RawMessage `json:"inference_geo"`
	Metadata            json.RawMessage `json:"metadata"`
	ServiceTier         json.RawMessage `json:"service_tier"`
	Speed               json.RawMessage `json:"speed"`
	Temperature         json.RawMessage `json:"temperature"`
	Thinking            json.RawMessage `json:"thinking"`
	UserProfileID       json.RawMessage `json:"user_profile_id"`
	WorkspaceID         json.RawMessage `json:"workspace_id"`
}

type anthropicMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// anthropicTool is a tool that the agent runs. Settings without effect on a model that is shown names, descriptions and schemas are
// accepted.
type anthropicTool struct {
	Type           string          `json:"type"`
	Name           string          `json:"name"`
	Description    string          `json:"description"`
	InputSchema    json.RawMessage `json:"input_schema"`
	AllowedCallers []string        `json:"allowed_callers"`

	CacheControl        json.RawMessage `json:"cache_control"`
	DeferLoading        json.RawMessage `json:"defer_loading"`
	EagerInputStreaming json.RawMessage `json:"eager_input_streaming"`
	InputExamples       json.RawMessage `json:"input_examples"`
	Strict              json.RawMessage `json:"strict"`
}

// asChatTool returns the tool as a template shows it.
func (t *anthropicTool) asChatTool() (chat.Tool, error) {
	if t.Type != "" && t.Type != "custom" || t.Name == "" {
		return chat.Tool{}, errors.New("want a tool with a name and an input_schema; the tools of Anthropic's own servers are not here")
	}
	if len(t.AllowedCallers) > 0 && !slices.Contains(t.AllowedCallers, "direct") {
		return chat.Tool{}, fmt.Errorf("allowed_callers is %.80q: only the model itself calls tools here, as direct", t.AllowedCallers)
	}
	return chat.Tool{Name: t.Name, Description: t.Description, Parameters: t.InputSchema}, nil
}

// block is a part of a message's content.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// newRequest returns the request in the gateway's form.
func (b *messagesBody) newRequest(s *Session) (*request, error) {
	if err := b.checkSupported(); err != nil {
		return nil, err
	}
	r, err := b.continuedRequest(s)
	if err != nil {
		return nil, err
	}
	system, err := joinParts(b.System, "text")
	if err != nil {
		return nil, openai.BadRequest("invalid_parameter", "system: %v", err)
	}
	if system != "" {
		r.messages = append(r.messages, chat.Message{Role: chat.System, Content: system})
	}
	if len(b.Messages) == 0 {
		return nil, openai.BadRequest("missing_parameter", "messages: is empty")
	}
	for i, m := range b.Messages {
		said, err := m.asChatMessages()
		if err != nil {
			return nil, openai.BadRequest("invalid_parameter", "messages[%d]: %v", i, err)
		}
		r.messages = append(r.messages, said...)
	}
	for i, t := range b.Tools {
		tool, err := t.asChatTool()
		if err != nil {
			return nil, openai.BadRequest("unsupported_parameter", "tools[%d]: %v", i, err)
		}
		r.tools = append(r.tools, tool)
	}
	if c := b.ToolChoice; c != nil {
		r.single = c.DisableParallelToolUse
		switch must := c.Type == "any" && len(r.tools) > 0; {
		case must, c.Type == "", c.Type == "auto":
			r.mustCall = must
		case c.Type == "none":
			r.tools = nil
		default:
			return nil, openai.BadRequest("unsupported_parameter", "tool_choice is %.40q: nothing holds the policy to a call; use auto or none", c.Type)
		}
	}
	return boundRequest(r, "max_tokens", b.MaxTokens)
}

// continuedRequest returns the request that this request goes on from, with the stop sequences of this request.
func (b *messagesBody) continuedRequest(s *Session) (*request, error) {
	r := &request{stop: b.StopSequences}
	switch t := b.Thread; {
	case t == nil || t.Type == "create":
	case t.Type != "continue":
		return nil, openai.BadRequest("invalid_parameter", "thread.type is %.40q: want create or continue", t.Type)
	case len(b.Tools) > 0 || openai.Given(b.System):
		return nil, openai.BadRequest("invalid_parameter", "thread: tools and system are those that it was created with: leave them out")
	default:
		before, ok := s.earlierRequest(strings.TrimPrefix(t.Previous, "msg_"))
		if !ok {
			return nil, openai.Refusal(http.StatusNotFound, "invalid_request_error", "thread_not_found",
				"thread.previous_message_id: %.80q is no message of this episode", t.Previous)
		}
		r.messages, r.tools = slices.Clone(before.messages), slices.Clone(before.tools)
	}
	return r, nil
}

// checkSupported names a field of the request that is not supported; nil where all are.
func (b *messagesBody) checkSupported() error {
	shaping := openai.Shaping{TopP: b.TopP, TopK: b.TopK}
	if err := shaping.Refused(); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		raw  json.RawMessage
	}{{"output_config.format", b.OutputConfig.Format}, {"output_format", b.OutputFormat}} {
		if openai.Given(f.raw) {
			return openai.BadRequest("unsupported_parameter", "%s is not supported: nothing holds the text to a format; ask for it in the prompt", f.name)
		}
	}
	if len(b.MCPServers) > 0 {
		return openai.BadRequest("unsupported_parameter", "mcp_servers is not supported: whoever asks runs the tools")
	}
	return nil
}

// asChatMessages returns the chat messages that a message of Anthropic's stands for: results of tools are messages of their own.
func (m *anthropicMessage) asChatMessages() ([]chat.Message, error) {
	if m.Role != chat.User && m.Role != chat.Assistant {
		return nil, fmt.Errorf("role is %.40q: want user or assistant", m.Role)
	}
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return []chat.Message{{Role: m.Role, Content: text}}, nil
	}
	var blocks []block
	if err := json.Unmarshal(m.Content, &blocks); err != nil {
		return nil, fmt.Errorf("content: want text or a list of blocks: %w", err)
	}
	var out []chat.Message
	own := chat.Message{Role: m.Role}
	said := false
	for i, b := range blocks {
		switch b.Type {
		case "text":
			own.Content += b.Text
			said = true
		case "tool_use":
			if m.Role != chat.Assistant || b.Name == "" || !isObject(b.Input) {
				return nil, fmt.Errorf("content[%d]: a tool_use is the assistant's, with a name and an input that is an object", i)
			}
			own.Calls = append(own.Calls, chat.Call{ID: b.ID, Name: b.Name, Arguments: b.Input})
			said = true
		case "tool_result":
			result, err := joinParts(b.Content, "text")
			if err != nil {
				return nil, fmt.Errorf("content[%d]: %w", i, err)
			}
			if b.IsError && !strings.HasPrefix(result, "error") {
				result = "error: " + result
			}
			out = append(out, chat.Message{Role: chat.ToolRole, CallID: b.ToolUseID, Content: result})
		case "thinking", "redacted_thinking": // the policy's own, which its context holds as it was sampled
		default:
			return nil, fmt.Errorf("content[%d].type is %.40q: want text, tool_use, tool_result or thinking", i, b.Type)
		}
	}
	if said || len(out) == 0 {
		out = append(out, own)
	}
	return out, nil
}

type anthropicAnswer struct {
	ID           string         `json:"id"`
	Type         string         `json:"type"`
	Role         string         `json:"role"`
	Model        string         `json:"model"`
	Content      []any          `json:"content"`
	StopReason   *string        `json:"stop_reason"`
	StopSequence *string        `json:"stop_sequence"`
	Usage        map[string]int `json:"usage"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type toolBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// anthropicFinish is a finish as Anthropic words it.
var anthropicFinish = map[finish]string{finishStop: "end_turn", finishLength: "max_tokens", finishCalls: "tool_use"}

// contentBlocks returns the reply as content blocks.
func (r *reply) contentBlocks() []any {
	out := []any{}
	if r.content != "" || len(r.calls) == 0 {
		out = append(out, textBlock{"text", r.content})
	}
	for _, call := range r.calls {
		out = append(out, toolBlock{"tool_use", call.ID, call.Name, call.Arguments})
	}
	return out
}

// wantsStream reports whether the client asks for events.
func (b *messagesBody) wantsStream() bool { return b.Stream }

// newAnswer returns the reply in the words of Anthropic's messages.
func (b *messagesBody) newAnswer(r *reply) anthropicAnswer {
	why := anthropicFinish[r.finish]
	m := anthropicAnswer{
		ID: "msg_" + r.id, Type: "message", Role: chat.Assistant, Model: b.Model, Content: r.contentBlocks(), StopReason: &why,
		Usage: map[string]int{"input_tokens": r.promptTokens, "output_tokens": r.sampled},
	}
	if r.finish == finishStop && r.stop != "" {
		why, m.StopSequence = "stop_sequence", &r.stop
	}
	return m
}

// writeAnswer writes the reply whole.
func (b *messagesBody) writeAnswer(w http.ResponseWriter, r *reply) error {
	return writeWhole(w, b.newAnswer(r))
}

// writeFailure writes an error as the last event.
func (*messagesBody) writeFailure(out *openai.Events, e *openai.Error) error {
	return out.SendNamed("error", anthropicError(e))
}

// writeStream writes the reply as the events of Anthropic's messages.
func (b *messagesBody) writeStream(out *openai.Events, r *reply) error {
	whole := b.newAnswer(r)
	var failed error
	send := func(name string, fields map[string]any) {
		if failed == nil {
			fields["type"] = name
			failed = out.SendNamed(name, fields)
		}
	}
	begun := whole
	begun.Content, begun.StopReason, begun.StopSequence = []any{}, nil, nil
	begun.Usage = map[string]int{"input_tokens": r.promptTokens, "output_tokens": 0}
	send("message_start", map[string]any{"message": begun})
	for i, item := range whole.Content {
		var first, delta any
		switch item := item.(type) {
		case textBlock:
			first, delta = textBlock{Type: "text"}, map[string]string{"type": "text_delta", "text": item.Text}
		case toolBlock:
			first = toolBlock{item.Type, item.ID, item.Name, json.RawMessage("{}")}
			delta = map[string]string{"type": "input_json_delta", "partial_json": string(item.Input)}
		}
		send("content_block_start", map[string]any{"index": i, "content_block": first})
		send("content_block_delta", map[string]any{"index": i, "delta": delta})
		send("content_block_stop", map[string]any{"index": i})
	}
	send("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": whole.StopReason, "stop_sequence": whole.StopSequence},
		"usage": map[string]int{"input_tokens": r.promptTokens, "output_tokens": r.sampled},
	})
	send("message_stop", map[string]any{})
	return failed
}

// anthropicError is a refusal as Anthropic words it.
func anthropicError(e *openai.Error) any {
	kind := map[int]string{
		http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error", http.StatusNotFound: "not_found_error",
		http.StatusRequestEntityTooLarge: "request_too_large", http.StatusServiceUnavailable: "overloaded_error",
	}[e.Status]
	switch {
	case kind != "":
	case e.Status >= http.StatusInternalServerError:
		kind = "api_error"
	default:
		kind = "invalid_request_error"
	}
	said := map[string]any{"type": kind, "message": e.Message}
	if e.Code == "thread_not_found" { // the clients send the whole conversation then
		said["details"] = map[string]string{"error_code": e.Code}
	}
	return map[string]any{"type": "error", "error": said}
}
