package vllm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-rl/weir/consumers/servers"
)

// sampling are the fields that both routes have. Each is sent, so that no default of the server's is in force.
type sampling struct {
	MaxTokens         int      `json:"max_tokens"`
	Temperature       *float64 `json:"temperature,omitempty"`
	TopP              *float64 `json:"top_p,omitempty"`
	TopK              *int     `json:"top_k,omitempty"`
	MinP              *float64 `json:"min_p,omitempty"`
	RepetitionPenalty *float64 `json:"repetition_penalty,omitempty"`
	PresencePenalty   *float64 `json:"presence_penalty,omitempty"`
	FrequencyPenalty  *float64 `json:"frequency_penalty,omitempty"`
	N                 int      `json:"n"`
	StopTokens        []int32  `json:"stop_token_ids"`
	IgnoreEOS         bool     `json:"ignore_eos"`
	Logprobs          int      `json:"logprobs"`
	SkipSpecial       bool     `json:"skip_special_tokens"`
}

func newSampling(q *servers.Query) sampling {
	s := sampling{MaxTokens: q.MaxTokens, N: 1, Logprobs: q.Top, StopTokens: q.Stop, IgnoreEOS: true}
	if s.StopTokens == nil {
		s.StopTokens = []int32{}
	}
	if !q.Bare || q.Temperature > 0 {
		t := float64(q.Temperature)
		s.Temperature = &t
	}
	if !q.Bare {
		one, zero, off := 1.0, 0.0, -1
		s.TopP, s.TopK, s.MinP, s.RepetitionPenalty, s.PresencePenalty, s.FrequencyPenalty = &one, &off, &zero, &one, &zero, &zero
	}
	return s
}

// tokenRequest is a call to the route of tokens.
type tokenRequest struct {
	ID       string        `json:"request_id"`
	Model    string        `json:"model"`
	Tokens   []int32       `json:"token_ids"`
	Stream   bool          `json:"stream"`
	Salt     string        `json:"cache_salt"`
	Sampling tokenSampling `json:"sampling_params"`
	Options  streamOptions `json:"stream_options"`
}

// streamOptions have a stream end with how much of the context was in the cache; the server must be started with
// --enable-prompt-tokens-details for it.
type streamOptions struct {
	Usage bool `json:"include_usage"`
}

type tokenSampling struct {
	sampling
	Detokenize bool `json:"detokenize"`
}

// textRequest is a call to the route of text, which takes and gives token ids too.
type textRequest struct {
	Model  string  `json:"model"`
	Prompt []int32 `json:"prompt"`
	Stream bool    `json:"stream"`
	Salt   string  `json:"cache_salt"`
	IDs    bool    `json:"return_token_ids"`
	// AsIDs has the tokens of log-probabilities written as "token_id:9707".
	AsIDs   bool          `json:"return_tokens_as_token_ids"`
	Options streamOptions `json:"stream_options"`
	sampling
}

// event is a piece of an answer, of either route. Tokens and log-probabilities are of the time since the last.
type event struct {
	Error   json.RawMessage `json:"error"`
	Choices []choice        `json:"choices"`
	Usage   *struct {
		Details *struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

type choice struct {
	Tokens   []int32         `json:"token_ids"`
	Logprobs json.RawMessage `json:"logprobs"`
	Finish   *string         `json:"finish_reason"`
	Versions []struct {
		Version string `json:"version"`
		Start   int    `json:"start"`
		End     int    `json:"end"`
	} `json:"weight_versions"`
}

// The routes of calls: of tokens, and of text.
const (
	tokenRoute = "/inference/v1/generate"
	textRoute  = "/v1/completions"
)

// Generate makes a call at the route of tokens, or where the server has none at the route of text. The first call after Model decides that,
// which is the probe's: the probe's result holds for the route that it has seen, and answers of the route of text do not name the weights.
func (s *speaker) Generate(ctx context.Context, q *servers.Query, seen func()) (*servers.Answer, error) {
	s.mu.Lock()
	model, route := s.model, s.route
	s.mu.Unlock()
	if route != textRoute {
		a, err := s.streamAnswer(ctx, tokenRoute, &tokenRequest{
			ID: q.ID, Model: model, Tokens: q.Tokens, Stream: true, Salt: q.Salt, Sampling: tokenSampling{sampling: newSampling(q)}, Options: streamOptions{true},
		}, q, seen)
		switch {
		case !isRouteMissing(err):
			if err == nil {
				s.settleRoute(tokenRoute)
			}
			return a, err
		case s.settleRoute(textRoute) == tokenRoute:
			return nil, fmt.Errorf("the server had a route of tokens when it was probed: %s", err.Error()) // no refusal of the call
		}
	}
	req := &textRequest{Model: model, Prompt: q.Tokens, Stream: true, Salt: q.Salt, IDs: true, AsIDs: true, sampling: newSampling(q), Options: streamOptions{true}}
	return s.streamAnswer(ctx, textRoute, req, q, seen)
}

// settleRoute decides where calls go, unless that is decided, and returns what is decided. Only Model opens the question again.
func (s *speaker) settleRoute(found string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.route = cmp.Or(s.route, found)
	return s.route
}

// isRouteMissing reports whether a server has no route of tokens: it does not know the path, or since 0.30.0 it answers 403 and names the
// argument that it was started without. Another 403 is a key's or a proxy's, and stays an error.
func isRouteMissing(err error) bool {
	status := servers.Status(err)
	return status == http.StatusNotFound || status == http.StatusForbidden && strings.Contains(err.Error(), scaleOut)
}

func (s *speaker) streamAnswer(ctx context.Context, path string, body any, q *servers.Query, seen func()) (*servers.Answer, error) {
	a := &servers.Answer{}
	err := s.remote.Stream(ctx, path, body, func(data []byte) error {
		seen()
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("%w: %s: %w", servers.ErrMalformed, path, err)
		}
		if len(e.Error) > 0 && string(e.Error) != "null" {
			return servers.Failed(string(e.Error))
		}
		if e.Usage != nil && e.Usage.Details != nil {
			a.Cached = e.Usage.Details.Cached
		}
		if len(e.Choices) == 0 {
			return nil // usage alone
		}
		if err := readChoice(a, &e.Choices[0], q.Top > 0); err != nil {
			return err
		}
		return q.TakePiece(a)
	})
	if err != nil {
		return nil, err
	}
	if a.Finish == "" {
		a.Finish = inferFinish(a, q)
	}
	return a, nil
}

// inferFinish is how an answer without a finish_reason ended. Before 0.32.0 the route of tokens leaves out a piece without tokens, and with
// it the end of an aborted call: the answer has the tokens that were sampled until then.
func inferFinish(a *servers.Answer, q *servers.Query) servers.Finish {
	n := len(a.Tokens)
	switch {
	case n > 0 && slices.Contains(q.Stop, a.Tokens[n-1]):
		return servers.FinishStop
	case n >= q.MaxTokens:
		return servers.FinishLength
	}
	return servers.FinishAborted
}

// readChoice adds a piece to an answer.
func readChoice(a *servers.Answer, c *choice, top bool) error {
	if a.Finish != "" && len(c.Tokens) > 0 {
		return fmt.Errorf("%w: tokens after finish_reason", servers.ErrMalformed)
	}
	entries, err := readLogprobs(c.Logprobs)
	if err != nil {
		return err
	}
	if len(entries) != len(c.Tokens) {
		return fmt.Errorf("%w: %d tokens with %d log-probabilities", servers.ErrMalformed, len(c.Tokens), len(entries))
	}
	for i, e := range entries {
		if e.token >= 0 && e.token != c.Tokens[i] {
			return fmt.Errorf("%w: the log-probability of token %d is where that of %d should be", servers.ErrMalformed, e.token, c.Tokens[i])
		}
		a.Tokens = append(a.Tokens, c.Tokens[i])
		a.Logprobs = append(a.Logprobs, e.logprob)
		if top {
			a.Likely = append(a.Likely, servers.SortLikely(e.likely))
		}
	}
	for _, v := range c.Versions {
		a.Spans = append(a.Spans, servers.Span{Label: v.Version, Start: v.Start, End: v.End})
	}
	if c.Finish != nil {
		a.Finish = servers.Finish(*c.Finish)
	}
	return nil
}
