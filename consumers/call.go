package consumers

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
)

// call is a generate request that has not ended. The goroutine of Batcher.Run owns everything above mu.
type call struct {
	ctx     context.Context //nolint:containedctx // a call carries its caller's context across to Batcher.Run
	req     *schemas.GenerateRequest
	context []int32 // the request's tokens, and the sampled tokens
	limit   int     // the length at which generation ends
	chunk   int     // tokens that are delivered at a time

	tokens   []int32 // sampled and not yet delivered
	logprobs []float32
	versions []int32

	mu     sync.Mutex
	out    schemas.GenerateChunk // delivered, not yet taken
	notify chan struct{}         // of capacity 1: out has something to send
}

// newCall checks the request against the model's vocabulary and length. room is false when the context leaves no room for
// another token.
func newCall(ctx context.Context, req *schemas.GenerateRequest, vocab, maxLen int) (c *call, room bool, err error) {
	switch t := req.Temperature; {
	case len(req.Tokens) == 0:
		return nil, false, fmt.Errorf("%w: no tokens", ErrBadRequest)
	case req.MaxTokens <= 0:
		return nil, false, fmt.Errorf("%w: max_tokens is %d: must be positive", ErrBadRequest, req.MaxTokens)
	case !(t == 0 || t >= gpu.MinTemperature && t <= gpu.MaxTemperature):
		return nil, false, fmt.Errorf("%w: temperature is %g: must be 0, or between %g and %g",
			ErrBadRequest, t, gpu.MinTemperature, gpu.MaxTemperature)
	}
	for i, token := range req.Tokens {
		if token < 0 || int(token) >= vocab {
			return nil, false, fmt.Errorf("%w: token %d is %d: the vocabulary has %d", ErrBadRequest, i, token, vocab)
		}
	}
	if len(req.Tokens) >= maxLen {
		return nil, false, nil
	}
	limit := min(len(req.Tokens)+req.MaxTokens, maxLen)
	if req.MaxTokens > maxLen { // the sum may have overflowed
		limit = maxLen
	}
	c = &call{ctx: ctx, req: req, limit: limit, notify: make(chan struct{}, 1)}
	c.context = append(make([]int32, 0, limit), req.Tokens...)
	return c, true, nil
}

// recordToken records a sampled token and reports whether generation ends with it.
func (c *call) recordToken(token int32, logprob float32, version int32) (stop schemas.GenerateStop, ended bool) {
	c.context = append(c.context, token)
	c.tokens = append(c.tokens, token)
	c.logprobs = append(c.logprobs, logprob)
	c.versions = append(c.versions, version)
	if slices.Contains(c.req.StopTokens, token) {
		return schemas.GenerateStopToken, true
	}
	return schemas.GenerateLength, len(c.context) >= c.limit
}

// flushTokens delivers the tokens sampled so far.
func (c *call) flushTokens() {
	if len(c.tokens) > 0 {
		c.deliverChunk(func(*schemas.GenerateChunk) {})
	}
}

// endCall delivers the tokens sampled so far, and why there are no more.
func (c *call) endCall(stop schemas.GenerateStop) {
	c.deliverChunk(func(out *schemas.GenerateChunk) { out.Done, out.Stop = true, stop })
}

// failCall ends the call with a reason.
func (c *call) failCall(reason string, retry bool) {
	c.deliverChunk(func(out *schemas.GenerateChunk) {
		out.Done, out.Stop, out.Error, out.Retry = true, schemas.GenerateError, reason, retry
	})
}

func (c *call) deliverChunk(set func(*schemas.GenerateChunk)) {
	c.mu.Lock()
	c.out.Tokens = append(c.out.Tokens, c.tokens...)
	c.out.Logprobs = append(c.out.Logprobs, c.logprobs...)
	c.out.Versions = append(c.out.Versions, c.versions...)
	set(&c.out)
	c.mu.Unlock()
	c.tokens, c.logprobs, c.versions = c.tokens[:0], c.logprobs[:0], c.versions[:0]
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// takeChunk empties out into a chunk that is the caller's.
func (c *call) takeChunk() *schemas.GenerateChunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.out
	c.out = schemas.GenerateChunk{}
	return &out
}
