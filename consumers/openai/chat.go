package openai

import (
	"net/http"
	"slices"

	api "github.com/weir-rl/weir/internal/openai"
)

// defaultChatTokens leaves max_tokens to the model's length.
const defaultChatTokens = 1 << 30

type chatBody struct {
	samplingBody
	Messages            []api.Message `json:"messages"`
	MaxCompletionTokens *int          `json:"max_completion_tokens"`
	Logprobs            bool          `json:"logprobs"`
	TopLogprobs         *int          `json:"top_logprobs"`
}

type chatAnswer = api.Answer[chatChoice]

type chatChoice struct {
	Index        int           `json:"index"`
	Message      *chatMessage  `json:"message,omitempty"`
	Delta        *chatMessage  `json:"delta,omitempty"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	tokenIDs
}

type chatMessage struct {
	Role      string         `json:"role,omitempty"`
	Content   string         `json:"content"`
	ToolCalls []api.ToolCall `json:"tool_calls,omitempty"`
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

func serveChat(o *API, w http.ResponseWriter, r *http.Request) error {
	var b chatBody
	if err := api.ReadJSON(r, &b); err != nil {
		return err
	}
	if b.TopLogprobs != nil && *b.TopLogprobs != 0 {
		return api.BadRequest("unsupported_parameter", "top_logprobs is %d: of each step only the sampled token's log-probability is kept; logprobs tells it", *b.TopLogprobs)
	}
	if len(b.Messages) == 0 {
		return api.BadRequest("missing_parameter", "messages: is empty")
	}
	if b.MaxTokens == nil {
		b.MaxTokens = b.MaxCompletionTokens
	}
	tokens, tools, err := o.encodeChat(&b)
	if err != nil {
		return err
	}
	choices, err := o.makeChoices(&b.samplingBody, [][]int32{tokens}, defaultChatTokens, "chatcmpl-")
	if err != nil {
		return err
	}
	if o.chat != nil { // whatever else ends an answer, the end of the turn does
		for _, c := range choices {
			c.p.silent = append(c.p.silent, o.chat.Stop()...)
			c.p.req.StopTokens = append(c.p.req.StopTokens, o.chat.Stop()...)
		}
	}
	body := func(object string, in []chatChoice, u *api.Usage) any {
		a := choices[0].a
		return chatAnswer{ID: a.id, Object: object, Created: a.created, Model: o.cfg.Model, Choices: in, Usage: u}
	}
	one := func(c *choice, from int, message, delta *chatMessage) chatChoice {
		out := chatChoice{Index: c.index, Message: message, Delta: delta, FinishReason: c.a.finishReason(), tokenIDs: c.a.idsFrom(&b.samplingBody, c.p, from)}
		if b.Logprobs {
			out.Logprobs = o.chatLogprobs(c.a, from)
		}
		return out
	}
	roles := slices.Repeat([]string{"assistant"}, len(choices)) // each is sent once
	// Each choice is opened before any goes on: the clients' own accumulators append choices in the order in which they come.
	begin := func(c *choice) any {
		if len(choices) == 1 {
			return nil
		}
		role := roles[c.index]
		roles[c.index] = ""
		return body("chat.completion.chunk", []chatChoice{{Index: c.index, Delta: &chatMessage{Role: role}}}, nil)
	}
	return o.writeAnswers(w, r, &b.samplingBody, choices, begin,
		func(c *choice, next piece) any {
			from, delta := next.from, &chatMessage{Role: roles[c.index], Content: next.text}
			if len(tools) > 0 { // whether a text is a call is seen at its end
				if c.a.finish == "" {
					return nil
				}
				from, delta = 0, o.makeMessage(&b, c.a, tools)
				delta.Role = roles[c.index]
			}
			roles[c.index] = ""
			return body("chat.completion.chunk", []chatChoice{one(c, from, nil, delta)}, nil)
		},
		func(u *api.Usage) any {
			var all []chatChoice
			for _, c := range choices {
				message := o.makeMessage(&b, c.a, tools) // which may change how it finished
				all = append(all, one(c, 0, message, nil))
			}
			return body("chat.completion", all, u)
		},
		func(u *api.Usage) any { return body("chat.completion.chunk", []chatChoice{}, u) },
	)
}

func (o *API) chatLogprobs(a *answer, from int) *chatLogprobs {
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
