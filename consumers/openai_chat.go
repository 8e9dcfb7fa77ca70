package consumers

import (
	"net/http"
)

// defaultChatTokens leaves max_tokens to the model's length.
const defaultChatTokens = 1 << 30

type chatBody struct {
	samplingBody
	Messages            []Message `json:"messages"`
	MaxCompletionTokens *int      `json:"max_completion_tokens"`
	Logprobs            bool      `json:"logprobs"`
	TopLogprobs         *int      `json:"top_logprobs"`
}

type chatAnswer struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *usageBody   `json:"usage,omitempty"`
}

type chatChoice struct {
	Index        int           `json:"index"`
	Message      *chatMessage  `json:"message,omitempty"`
	Delta        *chatMessage  `json:"delta,omitempty"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	tokenIDs
}

type chatMessage struct {
	Role      string     `json:"role,omitempty"`
	Content   string     `json:"content"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
}

type chatLogprob struct {
	Token       string     `json:"token"`
	Logprob     float32    `json:"logprob"`
	Bytes       []int      `json:"bytes"`
	TopLogprobs []struct{} `json:"top_logprobs"`
}

func serveChat(o *OpenAI, w http.ResponseWriter, r *http.Request) error {
	var b chatBody
	if err := readJSON(r, &b); err != nil {
		return err
	}
	if b.TopLogprobs != nil && *b.TopLogprobs != 0 {
		return badRequest("unsupported_parameter", "top_logprobs is %d: of each step only the sampled token's log-probability is kept; logprobs tells it", *b.TopLogprobs)
	}
	if len(b.Messages) == 0 {
		return badRequest("missing_parameter", "messages: is empty")
	}
	if b.MaxTokens == nil {
		b.MaxTokens = b.MaxCompletionTokens
	}
	tokens, tools, err := o.context(&b)
	if err != nil {
		return err
	}
	p, err := o.prepare(&b.samplingBody, tokens, defaultChatTokens)
	if err != nil {
		return err
	}
	if o.chat != nil { // whatever else ends an answer, the end of the turn does
		p.silent = append(p.silent, o.chat.Stop()...)
		p.req.StopTokens = append(p.req.StopTokens, o.chat.Stop()...)
	}
	a := newAnswer("chatcmpl-")
	body := func(object string, from int) chatAnswer {
		c := chatChoice{FinishReason: a.finishReason(), tokenIDs: a.ids(&b.samplingBody, p, from)}
		if b.Logprobs {
			c.Logprobs = o.chatLogprobs(a, from)
		}
		return chatAnswer{ID: a.id, Object: object, Created: a.created, Model: o.cfg.Model, Choices: []chatChoice{c}}
	}
	if !b.Stream {
		if err := o.generate(r.Context(), p, a, func(piece) error { return nil }); err != nil {
			return err
		}
		message := o.message(a, tools)
		whole := body("chat.completion", 0)
		whole.Choices[0].Message = message
		whole.Usage = a.usage(p)
		writeJSON(w, http.StatusOK, whole)
		return nil
	}
	out := &events{w: w}
	role := "assistant"
	err = o.generate(r.Context(), p, a, func(next piece) error {
		if tools { // whether a text is a call is seen at its end
			if a.finish == "" {
				return nil
			}
			message := o.message(a, true)
			for i := range message.ToolCalls {
				message.ToolCalls[i].Index = &i
			}
			part := body("chat.completion.chunk", 0)
			part.Choices[0].Delta = message
			return out.send(part)
		}
		part := body("chat.completion.chunk", next.from)
		part.Choices[0].Delta = &chatMessage{Role: role, Content: next.text}
		role = ""
		return out.send(part)
	})
	if err == nil && b.StreamOptions != nil && b.StreamOptions.IncludeUsage {
		last := body("chat.completion.chunk", len(a.tokens))
		last.Choices, last.Usage = []chatChoice{}, a.usage(p)
		err = out.send(last)
	}
	return out.end(err)
}

func (o *OpenAI) chatLogprobs(a *answer, from int) *chatLogprobs {
	l := &chatLogprobs{Content: []chatLogprob{}}
	for i, id := range a.tokens[from:] {
		token := o.tokenizer.Decode([]int32{id})
		c := chatLogprob{Token: token, Logprob: a.logprobs[from+i], Bytes: make([]int, len(token)), TopLogprobs: []struct{}{}}
		for j := range len(token) {
			c.Bytes[j] = int(token[j])
		}
		l.Content = append(l.Content, c)
	}
	return l
}
