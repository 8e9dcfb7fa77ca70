package servers

import (
	"fmt"
	"math"
	"slices"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/schemas"
)

var _ consumers.Streamer = (*Pool)(nil)

// emitError is an error of the reader that follows along.
type emitError struct{ err error }

func (e *emitError) Error() string { return e.err.Error() }

// teller hands out the tokens of an answer as they come; nil where nobody follows along.
func (c *call) teller(l *lease) func(*Answer) error {
	if c.live == nil {
		return nil
	}
	c.pool.mu.Lock()
	vocabulary := c.pool.config.VocabSize
	c.pool.mu.Unlock()
	return func(a *Answer) error {
		var chunk schemas.GenerateChunk
		for i := len(c.told); i < len(a.Tokens) && !c.stopped(); i++ {
			token := a.Tokens[i]
			if token < 0 || int(token) >= vocabulary || math.IsNaN(float64(a.Logprobs[i])) || len(c.tokens)+len(c.told) >= c.limit {
				break // what becomes of it is decided when the answer is whole
			}
			c.told = append(c.told, token)
			chunk.Tokens, chunk.Logprobs = append(chunk.Tokens, token), append(chunk.Logprobs, a.Logprobs[i])
			chunk.Versions = append(chunk.Versions, int32(l.epoch.version)) //nolint:gosec // Swap refuses versions above
		}
		if len(chunk.Tokens) == 0 {
			return nil
		}
		if err := c.live(&chunk); err != nil {
			return &emitError{fmt.Errorf("send a chunk of episode %q: %w", c.req.Episode, err)}
		}
		return nil
	}
}

// stopped says whether the last token that went out ends the call.
func (c *call) stopped() bool {
	return len(c.told) > 0 && slices.Contains(c.req.StopTokens, c.told[len(c.told)-1])
}

// goOnAfterTold keeps the tokens that went out, where the answer that they were of broke off: the call goes on after them.
func (c *call) goOnAfterTold(fault error) *schemas.GenerateChunk {
	c.tokens = append(c.tokens, c.told...)
	c.failures = 0
	if fault != nil {
		c.fault = fault
		c.pool.metrics.Failed.Inc()
	} else {
		c.pool.metrics.Cut.Inc()
	}
	if c.stopped() {
		return &schemas.GenerateChunk{Done: true, Stop: schemas.GenerateStopToken}
	}
	return &schemas.GenerateChunk{}
}
