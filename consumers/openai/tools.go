package openai

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/gpu/hf/template"
	api "github.com/weir-rl/weir/internal/openai"
)

// WithChat has chats written by a model's own template, which also shows tools and reads calls of them; nil leaves o as it is.
func (o *API) WithChat(c *chat.Chat) *API {
	o.chat = c
	return o
}

// encodeChat is a chat as token ids, and the tools that the answer may call. Without a template messages are joined as text.
func (o *API) encodeChat(b *chatBody) (ids []int32, tools []chat.Tool, err error) {
	if o.chat == nil {
		return o.encodeJoined(b.Messages), nil, nil
	}
	tools, err = o.readTools(b)
	if err != nil {
		return nil, nil, err
	}
	messages, err := api.Spoken(b.Messages)
	if err != nil {
		return nil, nil, err
	}
	ids, err = o.chat.Prompt(messages, tools)
	switch {
	case errors.Is(err, template.ErrRaised):
		return nil, nil, api.BadRequest("invalid_parameter", "messages: %v", err)
	case err != nil:
		return nil, nil, api.BadRequest("invalid_parameter", "messages: the model's chat template cannot write them: %v", err)
	}
	return ids, tools, nil
}

// encodeJoined is a chat as text. Without a way to write chats there is no control token in it, whatever messages spell.
func (o *API) encodeJoined(messages []api.Message) []int32 {
	if o.template != nil {
		return o.tokenizer.Encode(o.template(messages))
	}
	text := api.Join(messages)
	if t, ok := o.tokenizer.(interface {
		EncodeText(text string) []int32
		Special(id int32) bool
	}); ok {
		return t.EncodeText(text)
	}
	return o.tokenizer.Encode(text)
}

// readTools takes the tools out of a request.
func (o *API) readTools(b *chatBody) ([]chat.Tool, error) {
	if api.ForcesCall(b.ToolChoice) && !o.ignoresShaping(&b.samplingBody) {
		return nil, api.RefuseForcedCall(b.ToolChoice)
	}
	out, err := api.ReadTools(b.Tools, b.ToolChoice)
	b.Tools = nil
	if err != nil || len(out) == 0 {
		return nil, err
	}
	if err := o.chat.Tools(); err != nil {
		return nil, api.BadRequest("unsupported_parameter", "tools: %v", err)
	}
	return out, nil
}

// makeMessage is an answer as a message; calls are read out of it where there are tools, the first alone for a client that takes a single
// call at a time.
func (o *API) makeMessage(b *chatBody, a *answer, tools []chat.Tool) *chatMessage {
	m := &chatMessage{Role: "assistant", Content: a.text}
	if len(tools) == 0 || a.finish != "stop" {
		return m
	}
	reply := o.chat.Parse(a.text, tools...)
	if len(reply.Calls) == 0 || reply.Fault != "" {
		return m // a text that is no call stays text
	}
	if b.ParallelToolCalls != nil && !*b.ParallelToolCalls {
		reply.Calls = reply.Calls[:1] // the client takes a single call at a time
	}
	a.finish, m.Content = "tool_calls", reply.Content
	m.ToolCalls = api.WriteCalls(reply.Calls, func(i int, _ chat.Call) string {
		return fmt.Sprintf("call_%s_%d", strings.TrimPrefix(a.id, "chatcmpl-"), i)
	}, b.Stream)
	return m
}
