package sglang

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers/servers"
)

// A stream that sends all tokens again, and no new token, sends the same: other tokens would replace those that a reader has had already.
func TestAPieceWithoutANewTokenHasTheSameTokens(t *testing.T) {
	t.Parallel()
	read := func(pieces ...string) (*servers.Answer, error) {
		a := &servers.Answer{}
		for _, piece := range pieces {
			var e event
			require.NoError(t, json.Unmarshal([]byte(piece), &e))
			if err := readEvent(a, &e, false); err != nil {
				return a, err
			}
		}
		return a, nil
	}
	const first = `{"meta_info":{"completion_tokens":2,"output_token_logprobs":[[-1,7,null],[-2,8,null]]}}`
	a, err := read(first, `{"meta_info":{"finish_reason":{"type":"length"},"completion_tokens":2,"output_token_logprobs":[[-1,7,null],[-2,8,null]]}}`)
	require.NoError(t, err)
	require.Equal(t, []int32{7, 8}, a.Tokens)
	_, err = read(first, `{"meta_info":{"finish_reason":{"type":"length"},"completion_tokens":2,"output_token_logprobs":[[-1,7,null],[-2,9,null]]}}`)
	require.ErrorIs(t, err, servers.ErrMalformed)
	require.ErrorContains(t, err, "token 1 was 8, and is 9 in a later piece")
}
