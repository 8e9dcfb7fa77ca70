package sglang

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/consumers/servers"
)

// request is a call to /generate.
type request struct {
	ID         string   `json:"rid"`
	Tokens     []int32  `json:"input_ids"`
	Logprob    bool     `json:"return_logprob"`
	From       int      `json:"logprob_start_len"`
	Top        int      `json:"top_logprobs_num"`
	Text       bool     `json:"return_text_in_logprobs"`
	Stream     bool     `json:"stream"`
	RoutingKey string   `json:"routing_key,omitempty"`
	Salt       string   `json:"cache_salt"`
	Sampling   sampling `json:"sampling_params"`
}

// sampling has each field that changes the distribution, so that no default of the server's is in force.
type sampling struct {
	MaxTokens         int      `json:"max_new_tokens"`
	Temperature       *float64 `json:"temperature,omitempty"`
	TopP              *float64 `json:"top_p,omitempty"`
	TopK              *int     `json:"top_k,omitempty"`
	MinP              *float64 `json:"min_p,omitempty"`
	RepetitionPenalty *float64 `json:"repetition_penalty,omitempty"`
	PresencePenalty   *float64 `json:"presence_penalty,omitempty"`
	FrequencyPenalty  *float64 `json:"frequency_penalty,omitempty"`
	StopTokens        []int32  `json:"stop_token_ids"`
	IgnoreEOS         bool     `json:"ignore_eos"`
	SkipSpecial       bool     `json:"skip_special_tokens"`
	NoStopTrim        bool     `json:"no_stop_trim"`
	Spaces            bool     `json:"spaces_between_special_tokens"`
}

func newRequest(q *servers.Query) *request {
	r := &request{
		ID: q.ID, Tokens: q.Tokens, Logprob: true, From: -1, Stream: true, RoutingKey: q.Episode, Salt: q.Salt,
		Top: q.Top,
		// With ignore_eos SGLang looks at no stop token at all. Without it an answer also ends at the model's own end.
		Sampling: sampling{MaxTokens: q.MaxTokens, StopTokens: q.Stop, IgnoreEOS: len(q.Stop) == 0, NoStopTrim: true},
	}
	if q.Stop == nil {
		r.Sampling.StopTokens = []int32{}
	}
	if !q.Bare || q.Temperature > 0 {
		t := float64(q.Temperature)
		r.Sampling.Temperature = &t
	}
	if !q.Bare {
		one, zero, off := 1.0, 0.0, -1
		s := &r.Sampling
		s.TopP, s.TopK, s.MinP, s.RepetitionPenalty, s.PresencePenalty, s.FrequencyPenalty = &one, &off, &zero, &one, &zero, &zero
	}
	return r
}

// event is a piece of an answer, or all of it so far.
type event struct {
	Error json.RawMessage `json:"error"`
	IDs   []int32         `json:"output_ids"`
	Meta  *meta           `json:"meta_info"`
}

// meta describes the tokens of an event.
type meta struct {
	Finish    json.RawMessage `json:"finish_reason"`
	Completed *int            `json:"completion_tokens"`
	Cached    int64           `json:"cached_tokens"`
	Version   string          `json:"weight_version"`
	Versions  []struct {
		Version string `json:"version"`
		Start   int    `json:"start"`
		End     int    `json:"end"`
	} `json:"weight_versions"`
	Logprobs []logprob   `json:"output_token_logprobs"`
	Top      [][]logprob `json:"output_top_logprobs"`
}

// logprob is [log-probability, token, text or null].
type logprob struct {
	token int32
	value float32
}

// UnmarshalJSON reads a list of two or three.
func (l *logprob) UnmarshalJSON(data []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if len(parts) < 2 {
		return fmt.Errorf("a log-probability is %.60s: want [logprob, token, text]", data)
	}
	var value *float64
	if err := json.Unmarshal(parts[0], &value); err != nil {
		return err
	}
	l.value = servers.Logprob(value)
	return json.Unmarshal(parts[1], &l.token)
}

// Generate makes a call.
func (s *speaker) Generate(ctx context.Context, q *servers.Query, seen func()) (*servers.Answer, error) {
	a := &servers.Answer{}
	err := s.remote.Stream(ctx, "/generate", newRequest(q), func(data []byte) error {
		seen()
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("%w: /generate: %w", servers.ErrMalformed, err)
		}
		if len(e.Error) > 0 && string(e.Error) != "null" {
			return servers.Failed(string(e.Error))
		}
		if e.Meta == nil {
			return fmt.Errorf("%w: /generate: no meta_info", servers.ErrMalformed)
		}
		if err := readEvent(a, &e, q.Top > 0); err != nil {
			return err
		}
		return q.TakePiece(a)
	})
	if err != nil {
		return nil, err
	}
	if a.Finish == "" {
		return nil, fmt.Errorf("%w: /generate: the stream ended without finish_reason", servers.ErrMalformed)
	}
	return a, nil
}

// readEvent adds a piece to an answer.
func readEvent(a *servers.Answer, e *event, top bool) error {
	m := e.Meta
	if err := readFinish(a, m.Finish); err != nil {
		return err
	}
	// An answer that was aborted in the queue has no tokens, and an abort may leave out the log-probabilities of the last tokens: such
	// tokens are not used.
	cut := a.Finish == servers.FinishAborted && len(m.Logprobs) == 0
	if !cut {
		if err := alignPiece(a, m); err != nil {
			return err
		}
	}
	appendTokens(a, m, top)
	if len(e.IDs) > 0 && !cut {
		if k := len(a.Tokens) - len(e.IDs); k < 0 || !slices.Equal(a.Tokens[k:], e.IDs) {
			return malformed("output_ids are not the tokens of output_token_logprobs")
		}
	}
	a.Cached, a.Label = m.Cached, m.Version
	if m.Versions != nil {
		a.Spans = a.Spans[:0]
		for _, v := range m.Versions {
			if v.Start < len(a.Tokens) { // of a cut answer, the tokens that are left
				a.Spans = append(a.Spans, servers.Span{Label: v.Version, Start: v.Start, End: min(v.End, len(a.Tokens))})
			}
		}
	}
	return nil
}

// malformed is the error of an answer that is not in SGLang's format.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: /generate: "+format, append([]any{servers.ErrMalformed}, args...)...)
}

// alignPiece makes an answer ready for the tokens of a piece. A stream sends either the tokens since the last piece or all tokens from the
// start: the count of all tokens distinguishes the two. In the second case the answer's tokens are taken out, and must be those of the
// piece.
func alignPiece(a *servers.Answer, m *meta) error {
	n := len(a.Tokens)
	total := n + len(m.Logprobs)
	if m.Completed != nil {
		total = *m.Completed
	}
	switch {
	case len(m.Logprobs) == total && n <= total:
		for i, token := range a.Tokens {
			if m.Logprobs[i].token != token {
				return malformed("token %d was %d, and is %d in a later piece", i, token, m.Logprobs[i].token)
			}
		}
		a.Tokens, a.Logprobs, a.Likely = a.Tokens[:0], a.Logprobs[:0], a.Likely[:0]
	case n+len(m.Logprobs) == total:
	default:
		return malformed("%d log-probabilities came after %d, for %d tokens", len(m.Logprobs), n, total)
	}
	return nil
}

// appendTokens adds a piece's tokens, with the most likely tokens where they were asked for.
func appendTokens(a *servers.Answer, m *meta, top bool) {
	for i, l := range m.Logprobs {
		a.Tokens, a.Logprobs = append(a.Tokens, l.token), append(a.Logprobs, l.value)
		if !top {
			continue
		}
		var list []servers.Likely
		if i < len(m.Top) {
			for _, t := range m.Top[i] {
				list = append(list, servers.Likely{Token: t.token, Logprob: t.value})
			}
		}
		a.Likely = append(a.Likely, servers.SortLikely(list))
	}
}

// readFinish reads finish_reason: null, an object with a type, or the type alone.
func readFinish(a *servers.Answer, raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var reason struct {
		Type    string          `json:"type"`
		Message string          `json:"message"`
		Matched json.RawMessage `json:"matched"`
		Length  int             `json:"length"`
		Status  int             `json:"status_code"`
	}
	if json.Unmarshal(raw, &reason.Type) != nil {
		if err := json.Unmarshal(raw, &reason); err != nil {
			return fmt.Errorf("%w: /generate: finish_reason: %w", servers.ErrMalformed, err)
		}
	}
	a.Finish, a.Message, a.Bound = servers.Finish(reason.Type), reason.Message, reason.Length
	var token int32
	if json.Unmarshal(reason.Matched, &token) == nil {
		a.Matched = &token // a text is no token
	}
	if a.Finish == servers.FinishAborted && len(a.Tokens) == 0 && reason.Status >= 400 && reason.Status < 500 {
		return &servers.StatusError{Path: "/generate", Status: reason.Status, Text: reason.Message}
	}
	return nil
}
