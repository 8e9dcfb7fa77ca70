package openai

import (
	"encoding/json"

	"github.com/weir-rl/weir/gpu/hf/chat"
)

// Answer is the body of an answer of the completions and chat APIs, or an event of it. C is the API's choice.
type Answer[C any] struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []C    `json:"choices"`
	Usage   *Usage `json:"usage,omitempty"`
}

// Usage counts the tokens of a request and of its answers.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// NewUsage adds up tokens.
func NewUsage(prompt, completion int) *Usage {
	return &Usage{PromptTokens: prompt, CompletionTokens: completion, TotalTokens: prompt + completion}
}

// StreamOptions ask for more in a stream than its answers.
type StreamOptions struct {
	IncludeUsage       bool            `json:"include_usage"`
	IncludeObfuscation json.RawMessage `json:"include_obfuscation"`
}

// WantsUsage reports whether a stream ends with an event of its usage; nil does not.
func (o *StreamOptions) WantsUsage() bool { return o != nil && o.IncludeUsage }

// ForcesCall reports whether a tool_choice would hold the policy to a call, which nothing does.
func ForcesCall(choice json.RawMessage) bool {
	return Given(choice) && string(choice) != `"auto"` && string(choice) != `"none"`
}

// RefuseForcedCall is the refusal of such a tool_choice.
func RefuseForcedCall(choice json.RawMessage) *Error {
	return BadRequest("unsupported_parameter", "tool_choice is %.40s: nothing holds the policy to a call; use auto or none", choice)
}

// ReadTools reads the tools of a request: none where its tool_choice forbids calls. Chat completions have the function in an object of
// its own, responses beside the type.
func ReadTools(raw []json.RawMessage, choice json.RawMessage) ([]chat.Tool, error) {
	var tools []chat.Tool
	for i, one := range raw {
		var t struct {
			Type     string     `json:"type"`
			Function *chat.Tool `json:"function"`
			chat.Tool
		}
		err := json.Unmarshal(one, &t)
		if t.Function == nil {
			t.Function = &t.Tool
		}
		if err != nil || t.Type != "function" || t.Function.Name == "" {
			return nil, BadRequest("invalid_parameter", `tools[%d]: want {"type": "function", "function": {"name": ..., "parameters": {...}}}`, i)
		}
		tools = append(tools, *t.Function)
	}
	if string(choice) == `"none"` {
		return nil, nil
	}
	return tools, nil
}

// WriteCalls are calls as a message has them; events of a stream have the index of each.
func WriteCalls(calls []chat.Call, id func(i int, call chat.Call) string, streamed bool) []ToolCall {
	var out []ToolCall
	for i, call := range calls {
		w := ToolCall{ID: id(i, call), Type: "function", Function: Function{Name: call.Name, Arguments: string(call.Arguments)}}
		if streamed {
			w.Index = &i
		}
		out = append(out, w)
	}
	return out
}
