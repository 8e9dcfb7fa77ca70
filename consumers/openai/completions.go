package openai

import (
	"encoding/json"
	"net/http"
	"strings"

	api "github.com/weir-rl/weir/internal/openai"
)

// defaultCompletionTokens is the OpenAI API's max_tokens for completions.
const defaultCompletionTokens = 16

type completionBody struct {
	samplingBody
	Prompt json.RawMessage `json:"prompt"`
	// Logprobs is how many alternatives to list beside the sampled token; only the sampled token's log-probability is known, so 0 or 1.
	Logprobs *int `json:"logprobs"`
}

type completionAnswer = api.Answer[completionChoice]

type completionChoice struct {
	Index        int                 `json:"index"`
	Text         string              `json:"text"`
	Logprobs     *completionLogprobs `json:"logprobs"`
	FinishReason *string             `json:"finish_reason"`
	tokenIDs
}

type completionLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []float32            `json:"token_logprobs"`
	TopLogprobs   []map[string]float32 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

func serveCompletions(o *API, w http.ResponseWriter, r *http.Request) error {
	var b completionBody
	if err := api.ReadJSON(r, &b); err != nil {
		return err
	}
	if b.Logprobs != nil && (*b.Logprobs < 0 || *b.Logprobs > 1) {
		return api.BadRequest("unsupported_parameter", "logprobs is %d: only the sampled token's are told, ask for 0 or 1", *b.Logprobs)
	}
	prompts, err := promptTokens(b.Prompt, o.tokenizer)
	if err != nil {
		return err
	}
	if len(prompts) == 0 {
		return api.BadRequest("missing_parameter", "prompt: the list is empty")
	}
	choices, err := o.makeChoices(&b.samplingBody, prompts, defaultCompletionTokens, "cmpl-")
	if err != nil {
		return err
	}
	body := func(in []completionChoice, u *api.Usage) any {
		a := choices[0].a
		return completionAnswer{ID: a.id, Object: "text_completion", Created: a.created, Model: o.cfg.Model, Choices: in, Usage: u}
	}
	one := func(c *choice, from int, text string, before int) completionChoice {
		out := completionChoice{Index: c.index, Text: text, FinishReason: c.a.finishReason(), tokenIDs: c.a.idsFrom(&b.samplingBody, c.p, from)}
		if b.Logprobs != nil {
			out.Logprobs = o.completionLogprobs(c.a, from, before)
		}
		return out
	}
	return o.writeAnswers(w, r, &b.samplingBody, choices, func(*choice) any { return nil },
		func(c *choice, next piece) any {
			return body([]completionChoice{one(c, next.from, next.text, len(c.a.text)-len(next.text))}, nil)
		},
		func(u *api.Usage) any {
			var all []completionChoice
			for _, c := range choices {
				all = append(all, one(c, 0, c.a.text, 0))
			}
			return body(all, u)
		},
		func(u *api.Usage) any { return body([]completionChoice{}, u) },
	)
}

// completionLogprobs lists the tokens from index from on; their text begins at the given offset of the answer's text.
func (o *API) completionLogprobs(a *answer, from, offset int) *completionLogprobs {
	l := &completionLogprobs{TokenLogprobs: a.logprobs[from:], Tokens: []string{}, TextOffset: []int{}}
	for _, id := range a.tokens[from:] {
		token := o.tokenizer.Decode([]int32{id})
		if i := strings.Index(a.text[offset:], token); i >= 0 {
			offset += i
		}
		l.Tokens = append(l.Tokens, token)
		l.TextOffset = append(l.TextOffset, offset)
		offset = min(offset+len(token), len(a.text))
	}
	return l
}
