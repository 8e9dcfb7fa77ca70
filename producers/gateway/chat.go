package gateway

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/internal/openai"
)

// chatBody is a request of OpenAI's chat completions.
type chatBody struct {
	openai.Shaping
	Model               string                `json:"model"`
	Messages            []openai.Message      `json:"messages"`
	MaxTokens           *int                  `json:"max_tokens"`
	MaxCompletionTokens *int                  `json:"max_completion_tokens"`
	Stop                openai.TextList       `json:"stop"`
	Stream              bool                  `json:"stream"`
	StreamOptions       *openai.StreamOptions `json:"stream_options"`
	N                   *int                  `json:"n"`
	Logprobs            bool                  `json:"logprobs"`
	Tools               []json.RawMessage     `json:"tools"`
	ToolChoice          json.RawMessage       `json:"tool_choice"`
	ParallelToolCalls   *bool                 `json:"parallel_tool_calls"`
	Functions           []json.RawMessage     `json:"functions"`
	FunctionCall        json.RawMessage       `json:"function_call"`
	TopLogprobs         json.RawMessage       `json:"top_logprobs"`
	ticketed
}

// ticketed are settings that the ticket decides, whatever a request says, and settings of an API that change nothing.
type ticketed struct {
	openai.Neutral
	Temperature json.RawMessage `json:"temperature"`
	Seed        json.RawMessage `json:"seed"`
}

const whyLogprobs = "the log-probabilities are kept with the episode: weir trajectory shows them"

// newRequest returns the request in the gateway's form.
func (b *chatBody) newRequest(*Session) (*request, error) {
	if err := b.Shaping.Refused(); err != nil {
		return nil, err
	}
	if err := b.Media.Refused(); err != nil {
		return nil, err
	}
	switch {
	case len(b.Functions) > 0:
		return nil, openai.BadRequest("unsupported_parameter", "functions: name them as tools")
	case b.N != nil && *b.N != 1:
		return nil, openai.BadRequest("unsupported_parameter", "n is %d: ask again for another answer", *b.N)
	case b.Logprobs:
		return nil, openai.BadRequest("unsupported_parameter", "logprobs: %s", whyLogprobs)
	case len(b.Messages) == 0:
		return nil, openai.BadRequest("missing_parameter", "messages: is empty")
	}
	messages, err := openai.Spoken(b.Messages)
	if err != nil {
		return nil, err
	}
	tools, must, err := readTools(b.Tools, b.ToolChoice)
	if err != nil {
		return nil, err
	}
	if b.MaxTokens == nil {
		b.MaxTokens = b.MaxCompletionTokens
	}
	r := &request{messages: messages, tools: tools, stop: b.Stop, single: allowsOneCall(b.ParallelToolCalls), mustCall: must}
	return boundRequest(r, "max_tokens", b.MaxTokens)
}

// allowsOneCall reports whether a client takes at most a single call of a turn.
func allowsOneCall(parallel *bool) bool { return parallel != nil && !*parallel }

// boundRequest puts a bound on the sampled tokens into a request, and refuses stops that are in every text.
func boundRequest(r *request, name string, most *int) (*request, error) {
	if most != nil {
		if *most < 1 {
			return nil, openai.BadRequest("invalid_parameter", "%s is %d: must be positive", name, *most)
		}
		r.maxTokens = *most
	}
	if slices.Contains(r.stop, "") {
		return nil, openai.BadRequest("invalid_parameter", `stop: "" is in every text`)
	}
	return r, nil
}

// readTools returns the tools of a request, none where its choice forbids calls, and whether it wants a call of any of them. A choice of a
// single tool is refused.
func readTools(raw []json.RawMessage, choice json.RawMessage) (tools []chat.Tool, must bool, err error) {
	if must = string(choice) == `"required"` && len(raw) > 0; !must && openai.ForcesCall(choice) {
		return nil, false, openai.RefuseForcedCall(choice)
	}
	tools, err = openai.ReadTools(raw, choice)
	return tools, must, err
}

type chatAnswer = openai.Answer[chatChoice]

type chatChoice struct {
	Index        int          `json:"index"`
	Message      *chatMessage `json:"message,omitempty"`
	Delta        *chatMessage `json:"delta,omitempty"`
	FinishReason *string      `json:"finish_reason"`
}

type chatMessage struct {
	Role             string            `json:"role,omitempty"`
	Content          *string           `json:"content"`
	ReasoningContent string            `json:"reasoning_content,omitempty"`
	ToolCalls        []openai.ToolCall `json:"tool_calls,omitempty"`
}

// chatFinish is a finish as chat completions word it.
var chatFinish = map[finish]string{finishStop: "stop", finishLength: "length", finishCalls: "tool_calls"}

func (r *reply) chatMessage(streamed bool) *chatMessage {
	m := &chatMessage{Role: chat.Assistant, ReasoningContent: r.reasoning}
	if r.content != "" || len(r.calls) == 0 {
		m.Content = &r.content
	}
	m.ToolCalls = openai.WriteCalls(r.calls, func(_ int, call chat.Call) string { return call.ID }, streamed)
	return m
}

func (r *reply) chatUsage() *openai.Usage { return openai.NewUsage(r.promptTokens, r.sampled) }

// wantsStream reports whether the client asks for events.
func (b *chatBody) wantsStream() bool { return b.Stream }

// newAnswer returns an answer, or an event of an answer.
func (b *chatBody) newAnswer(r *reply, object string, usage *openai.Usage, choices ...chatChoice) chatAnswer {
	if choices == nil {
		choices = []chatChoice{}
	}
	return chatAnswer{ID: "chatcmpl-" + r.id, Object: object, Created: r.created, Model: b.Model, Choices: choices, Usage: usage}
}

// writeAnswer writes the reply in the words of chat completions.
func (b *chatBody) writeAnswer(w http.ResponseWriter, r *reply) error {
	why, message := chatFinish[r.finish], r.chatMessage(false)
	return writeWhole(w, b.newAnswer(r, "chat.completion", r.chatUsage(), chatChoice{Message: message, FinishReason: &why}))
}

// writeStream writes the reply as the events of chat completions.
func (b *chatBody) writeStream(out *openai.Events, r *reply) error {
	const chunk = "chat.completion.chunk"
	why := chatFinish[r.finish]
	events := []any{
		b.newAnswer(r, chunk, nil, chatChoice{Delta: r.chatMessage(true)}),
		b.newAnswer(r, chunk, nil, chatChoice{Delta: &chatMessage{}, FinishReason: &why}),
	}
	if b.StreamOptions.WantsUsage() {
		events = append(events, b.newAnswer(r, chunk, r.chatUsage()))
	}
	for _, event := range events {
		if err := out.Send(event); err != nil {
			return err
		}
	}
	return out.End(nil)
}

// writeFailure writes an error as the last event.
func (*chatBody) writeFailure(out *openai.Events, e *openai.Error) error { return out.Send(e.Body()) }
