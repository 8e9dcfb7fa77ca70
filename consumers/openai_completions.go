package consumers

import (
	"encoding/json"
	"net/http"
	"strings"
)

// defaultCompletionTokens is the OpenAI API's max_tokens for completions.
const defaultCompletionTokens = 16

type completionBody struct {
	samplingBody
	Prompt json.RawMessage `json:"prompt"`
	// Logprobs is how many alternatives to tell beside the sampled token; only the sampled token's log-probability is told, so 0 or 1.
	Logprobs *int `json:"logprobs"`
}

type completionAnswer struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   *usageBody         `json:"usage,omitempty"`
}

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

func serveCompletions(o *OpenAI, w http.ResponseWriter, r *http.Request) error {
	var b completionBody
	if err := readJSON(r, &b); err != nil {
		return err
	}
	if b.Logprobs != nil && (*b.Logprobs < 0 || *b.Logprobs > 1) {
		return badRequest("unsupported_parameter", "logprobs is %d: only the sampled token's are told, ask for 0 or 1", *b.Logprobs)
	}
	tokens, err := promptTokens(b.Prompt, o.tokenizer)
	if err != nil {
		return err
	}
	p, err := o.prepare(&b.samplingBody, tokens, defaultCompletionTokens)
	if err != nil {
		return err
	}
	a := newAnswer("cmpl-")
	body := func(from int, text string, before int) completionAnswer {
		c := completionChoice{Text: text, FinishReason: a.finishReason(), tokenIDs: a.ids(&b.samplingBody, p, from)}
		if b.Logprobs != nil {
			c.Logprobs = o.completionLogprobs(a, from, before)
		}
		return completionAnswer{
			ID: a.id, Object: "text_completion", Created: a.created, Model: o.cfg.Model, Choices: []completionChoice{c},
		}
	}
	if !b.Stream {
		if err := o.generate(r.Context(), p, a, func(piece) error { return nil }); err != nil {
			return err
		}
		whole := body(0, a.text, 0)
		whole.Usage = a.usage(p)
		writeJSON(w, http.StatusOK, whole)
		return nil
	}
	out := &events{w: w}
	err = o.generate(r.Context(), p, a, func(next piece) error {
		return out.send(body(next.from, next.text, len(a.text)-len(next.text)))
	})
	if err == nil && b.StreamOptions != nil && b.StreamOptions.IncludeUsage {
		last := body(len(a.tokens), "", len(a.text))
		last.Choices, last.Usage = []completionChoice{}, a.usage(p)
		err = out.send(last)
	}
	return out.end(err)
}

// completionLogprobs tells the tokens from index from on; their text begins at the given offset of the answer's text.
func (o *OpenAI) completionLogprobs(a *answer, from, offset int) *completionLogprobs {
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
