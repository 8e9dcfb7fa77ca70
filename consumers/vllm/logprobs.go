package vllm

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/consumers/servers"
)

// entry is a token's log-probability. token is -1 where the server does not name the token.
type entry struct {
	token   int32
	logprob float32
	likely  []servers.Likely
}

// named is a token with its log-probability, in the form with token_id or the older form, "token_id:9707".
type named struct {
	ID      *int32   `json:"token_id"`
	Token   *string  `json:"token"`
	Logprob *float64 `json:"logprob"`
}

func (n named) tokenID() (int32, error) {
	if n.ID != nil {
		return *n.ID, nil
	}
	if n.Token == nil {
		return 0, fmt.Errorf("%w: a log-probability has neither token_id nor token", servers.ErrMalformed)
	}
	return parseTokenID(*n.Token)
}

// parseTokenID reads "token_id:9707".
func parseTokenID(text string) (int32, error) {
	digits, ok := strings.CutPrefix(text, "token_id:")
	id, err := strconv.ParseInt(digits, 10, 32)
	if !ok || err != nil {
		return 0, fmt.Errorf("%w: a log-probability is of token %.40q: want token_id:N", servers.ErrMalformed, text)
	}
	return int32(id), nil
}

// readLogprobs reads the log-probabilities of a piece: {"content": [...]}, or the route of text's {"token_logprobs": [...]}.
func readLogprobs(raw json.RawMessage) ([]entry, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var form struct {
		Content *[]content `json:"content"`
		textLogprobs
	}
	if err := json.Unmarshal(raw, &form); err != nil {
		return nil, fmt.Errorf("%w: logprobs: %w", servers.ErrMalformed, err)
	}
	switch {
	case form.Content != nil:
		return readContent(*form.Content)
	case form.TokenLogprobs != nil:
		return form.textLogprobs.entries()
	}
	return nil, fmt.Errorf("%w: logprobs have neither content nor token_logprobs", servers.ErrMalformed)
}

// content is a token's log-probability at the route of tokens.
type content struct {
	named
	Top []named `json:"top_logprobs"`
}

// readContent reads the log-probabilities of the route of tokens.
func readContent(list []content) (out []entry, err error) {
	for _, c := range list {
		id, err := c.tokenID()
		if err != nil {
			return nil, err
		}
		e := entry{token: id, logprob: servers.Logprob(c.Logprob)}
		for _, t := range c.Top {
			if err := e.addLikely(t); err != nil {
				return nil, err
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// textLogprobs are the log-probabilities of the route of text.
type textLogprobs struct {
	TokenLogprobs *[]*float64           `json:"token_logprobs"`
	TopLogprobs   []map[string]*float64 `json:"top_logprobs"`
}

// entries are the log-probabilities, without the ids of their tokens.
func (l textLogprobs) entries() (out []entry, err error) {
	for i, lp := range *l.TokenLogprobs {
		e := entry{token: -1, logprob: servers.Logprob(lp)}
		if i < len(l.TopLogprobs) {
			for text, lp := range l.TopLogprobs[i] {
				if err := e.addLikely(named{Token: &text, Logprob: lp}); err != nil {
					return nil, err
				}
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// addLikely notes a token that might have been sampled.
func (e *entry) addLikely(t named) error {
	id, err := t.tokenID()
	if err != nil {
		return err
	}
	e.likely = append(e.likely, servers.Likely{Token: id, Logprob: servers.Logprob(t.Logprob)})
	return nil
}
