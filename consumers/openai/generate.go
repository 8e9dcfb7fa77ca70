package openai

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	api "github.com/weir-rl/weir/internal/openai"
	"github.com/weir-rl/weir/schemas"
)

// answer has the tokens that were sampled for a prompt.
type answer struct {
	id       string
	created  int64
	tokens   []int32
	logprobs []float32
	versions []int32
	text     string // of tokens, without a stop string; while it streams, without an end that may still change
	finish   string // "" while it streams, then stop or length

	// sent is text while it streams. The tokens from tail on are decoded with each chunk, the tokens from fresh on are of the last
	// chunk that ended with a whole character; told is the part of the tail's text that is in sent.
	sent        strings.Builder
	shown       string // text before the last chunk
	tail, fresh int
	told        string
}

// readText adds the text of the tokens since the last chunk, as far as it is certain. It decodes the tokens of the last two
// chunks alone: a token's text may depend on the token before it, and the bytes of a character may come in several tokens.
func (a *answer) readText(t Tokenizer) {
	text := t.Decode(a.tokens[a.tail:])
	certain := strings.TrimRight(text, "\uFFFD")
	if !strings.HasPrefix(certain, a.told) {
		return // the whole is decoded at the end
	}
	a.sent.WriteString(certain[len(a.told):])
	a.text, a.told = a.sent.String(), certain
	if certain == text {
		a.tail, a.fresh = a.fresh, len(a.tokens)
		a.told = t.Decode(a.tokens[a.tail:])
	}
}

// piece is the part of an answer that a chunk added.
type piece struct {
	from int    // the tokens from here on are new
	text string // new text
}

func newAnswer(prefix string) *answer {
	id := make([]byte, 12)
	_, _ = rand.Read(id) // never fails
	return &answer{id: prefix + hex.EncodeToString(id), created: time.Now().Unix()}
}

// generateAnswer fills a and gives each piece to emit.
func (o *API) generateAnswer(ctx context.Context, p *prompt, a *answer, emit func(piece) error) error {
	generate := o.generator.Generate
	if each, ok := o.generator.(Streamer); ok && (p.stream || len(p.stops) > 0) {
		generate = each.Stream
	}
	err := generate(ctx, p.req, func(c *schemas.GenerateChunk) error {
		if c.Done && c.Stop == schemas.GenerateError {
			return wordRefusal(c)
		}
		from, sent := len(a.tokens), len(a.text)
		a.shown = a.text
		a.tokens = append(a.tokens, c.Tokens...)
		a.logprobs = append(a.logprobs, c.Logprobs...)
		a.versions = append(a.versions, c.Versions...)
		if !c.Done {
			a.readText(o.tokenizer)
		} else {
			shown := a.tokens
			if n := len(shown); n > 0 && c.Stop == schemas.GenerateStopToken && p.isSilent(shown[n-1]) {
				shown = shown[:n-1]
			}
			a.text = o.tokenizer.Decode(shown)
			a.finish = map[schemas.GenerateStop]string{schemas.GenerateStopToken: "stop", schemas.GenerateLength: "length"}[c.Stop]
		}
		stopped := p.cutAtStop(a, c.Done)
		if len(a.text) < sent { // sent text is not taken back
			a.text = a.shown
		}
		if err := emit(piece{from: from, text: a.text[min(sent, len(a.text)):]}); err != nil {
			return err
		}
		if stopped && !c.Done {
			return errStopText
		}
		return nil
	})
	if errors.Is(err, errStopText) {
		return nil
	}
	return err
}

// wordRefusal words a Sampler's refusal for HTTP.
func wordRefusal(c *schemas.GenerateChunk) *api.Error {
	switch {
	case c.Retry:
		return api.Refusal(http.StatusServiceUnavailable, "server_error", "overloaded", "%s", c.Error)
	case strings.HasPrefix(c.Error, ErrBadRequest.Error()):
		return api.BadRequest("invalid_parameter", "%s", c.Error)
	}
	return api.Refusal(http.StatusInternalServerError, "server_error", "generation_failed", "%s", c.Error)
}

// tokenIDs are the fields that return_token_ids adds to a choice.
type tokenIDs struct {
	PromptTokenIDs []int32 `json:"prompt_token_ids,omitempty"`
	TokenIDs       []int32 `json:"token_ids,omitempty"`
	// PolicyVersions and TokenLogprobs have an entry for each token.
	PolicyVersions []int32   `json:"policy_versions,omitempty"`
	TokenLogprobs  []float32 `json:"token_logprobs,omitempty"`
}

// idsFrom lists the tokens from index from on; the prompt's with the first.
func (a *answer) idsFrom(b *samplingBody, p *prompt, from int) tokenIDs {
	if !b.ReturnTokenIDs {
		return tokenIDs{}
	}
	t := tokenIDs{TokenIDs: a.tokens[from:], PolicyVersions: a.versions[from:], TokenLogprobs: a.logprobs[from:]}
	if from == 0 {
		t.PromptTokenIDs = p.req.Tokens
	}
	return t
}

// finishReason is null while an answer streams.
func (a *answer) finishReason() *string {
	if a.finish == "" {
		return nil
	}
	return &a.finish
}
