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

// emitArrived gives the caller tokens of an answer that is still under way: to a reader that follows along each as it comes, else the
// tokens that the keeper's last look at the server's version vouches for. So a caller whose time ends has the tokens until then.
func (c *call) emitArrived(l *lease) func(*Answer) error {
	c.pool.mu.Lock()
	vocabulary := c.pool.config.VocabSize
	c.pool.mu.Unlock()
	return func(a *Answer) error {
		l.arrived.Store(int64(len(a.Tokens)))
		n := len(a.Tokens)
		if !c.follows {
			n = min(n, int(l.vouched.Load()))
		}
		var chunk schemas.GenerateChunk
		for i := len(c.told); i < n && !c.endsAtStop(); i++ {
			token, logprob := a.Tokens[i], a.Logprobs[i]
			if token < 0 || int(token) >= vocabulary || math.IsNaN(float64(logprob)) || logprob > maxLogprob || len(c.tokens)+len(c.told) >= c.limit {
				break // it is judged when the answer is whole
			}
			c.told = append(c.told, token)
			chunk.Tokens, chunk.Logprobs = append(chunk.Tokens, token), append(chunk.Logprobs, logprob)
			chunk.Versions = append(chunk.Versions, int32(l.epoch.version)) //nolint:gosec // Swap refuses versions above
		}
		if len(chunk.Tokens) == 0 {
			return nil
		}
		if err := c.emit(&chunk); err != nil {
			return &emitError{fmt.Errorf("send a chunk of episode %q: %w", c.req.Episode, err)}
		}
		return nil
	}
}

// endsAtStop reports whether the last token that went out ends the call.
func (c *call) endsAtStop() bool {
	return len(c.told) > 0 && slices.Contains(c.req.StopTokens, c.told[len(c.told)-1])
}

// goOnAfterEmitted keeps the tokens that went out, where the answer that they were of broke off: the call goes on after them.
func (c *call) goOnAfterEmitted(fault error) *schemas.GenerateChunk {
	c.tokens = append(c.tokens, c.told...)
	c.failures = 0
	if fault != nil {
		c.fault = fault
		c.pool.metrics.Failed.Inc()
	} else {
		c.pool.metrics.Cut.Inc()
	}
	if c.endsAtStop() {
		return &schemas.GenerateChunk{Done: true, Stop: schemas.GenerateStopToken}
	}
	return &schemas.GenerateChunk{}
}
