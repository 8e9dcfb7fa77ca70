package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
)

// maxFailures is how often a call may fail without a token gained before it is sent to another consumer.
const maxFailures = 20

// The waits before a call that failed is sent again.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
)

// call is one generate request on its way through servers.
type call struct {
	pool *Pool
	req  *schemas.GenerateRequest
	// tokens are the context and what was sampled, limit the length at which generation ends.
	tokens []int32
	limit  int
	// failures counts since a token was last gained; fault is the last.
	failures int
	fault    error
	// emit takes chunks. follows is whether they have tokens before anybody vouches for these.
	emit    func(*schemas.GenerateChunk) error
	follows bool
	// told are the tokens of the answer under way that have gone out.
	told []int32
}

// Generate serves one call: at one server, or at several after one another when servers end it. Each chunk is what one server
// sampled, vouched for: when its answer is whole, and before that whenever the server was seen to have its weights still.
func (p *Pool) Generate(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	return p.generate(ctx, req, emit, false)
}

// Stream is Generate for a reader that follows along: tokens go out as a server says them, before they are vouched for. They are
// not for training.
func (p *Pool) Stream(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	return p.generate(ctx, req, emit, true)
}

func (p *Pool) generate(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error, follows bool) error {
	c, refused := p.newCall(req)
	if c != nil {
		c.emit, c.follows = emit, follows
	}
	for refused == nil {
		chunk, err := c.attempt(ctx)
		if err != nil {
			return fmt.Errorf("generate for episode %q: %w", req.Episode, err)
		}
		switch {
		case chunk.Done || len(chunk.Tokens) > 0:
			if err := emit(chunk); err != nil {
				return fmt.Errorf("send a chunk of episode %q: %w", req.Episode, err)
			}
			if chunk.Done {
				return nil
			}
		case c.failures > maxFailures:
			refused = refuse(fmt.Sprintf("%d servers in a row have failed the call: %v", c.failures, c.fault), true)
		default:
			if err := c.pause(ctx); err != nil {
				return fmt.Errorf("generate for episode %q: %w", req.Episode, err)
			}
		}
	}
	if err := emit(refused); err != nil {
		return fmt.Errorf("send a chunk of episode %q: %w", req.Episode, err)
	}
	return nil
}

// newCall checks a request against the model, or returns the chunk that ends it.
func (p *Pool) newCall(req *schemas.GenerateRequest) (*call, *schemas.GenerateChunk) {
	p.mu.Lock()
	vocabulary, maxLen, version := p.config.VocabSize, p.maxLen, p.version
	p.mu.Unlock()
	bad := func(format string, args ...any) (*call, *schemas.GenerateChunk) {
		return nil, refuse(fmt.Errorf("%w: "+format, append([]any{consumers.ErrBadRequest}, args...)...).Error(), false)
	}
	if version < 0 {
		return nil, busy("no weights yet")
	}
	switch t := req.Temperature; {
	case len(req.Tokens) == 0:
		return bad("no tokens")
	case req.MaxTokens <= 0:
		return bad("max_tokens is %d: must be positive", req.MaxTokens)
	case !(t == 0 || t >= gpu.MinTemperature && t <= gpu.MaxTemperature):
		return bad("temperature is %g: must be 0, or between %g and %g", t, gpu.MinTemperature, gpu.MaxTemperature)
	}
	for i, token := range req.Tokens {
		if token < 0 || int(token) >= vocabulary {
			return bad("token %d is %d: the vocabulary has %d", i, token, vocabulary)
		}
	}
	if len(req.Tokens) >= maxLen {
		return nil, &schemas.GenerateChunk{Done: true, Stop: schemas.GenerateLength}
	}
	limit := maxLen
	if req.MaxTokens < maxLen-len(req.Tokens) {
		limit = len(req.Tokens) + req.MaxTokens
	}
	return &call{pool: p, req: req, tokens: slices.Clone(req.Tokens), limit: limit}, nil
}

// attempt has one server go on with the call. The chunk is empty where nothing came of it; an error is the caller's end.
func (c *call) attempt(ctx context.Context) (*schemas.GenerateChunk, error) {
	l, refused, err := c.pool.take(ctx, c.req)
	if l == nil {
		return refused, err
	}
	limit := c.limit
	c.pool.mu.Lock()
	if most := l.server.state.maxTokens; most > 0 {
		limit = min(limit, most)
	}
	c.pool.mu.Unlock()
	if len(c.tokens) >= limit {
		c.pool.release(l, nil)
		return &schemas.GenerateChunk{Done: true, Stop: schemas.GenerateLength}, nil
	}
	c.told = nil
	answer, err := c.ask(l, limit-len(c.tokens))
	var chunk *schemas.GenerateChunk
	if err == nil {
		if chunk, err = c.accept(l, answer, limit); err == nil {
			l.server.countEnds(chunk.Tokens, answer.Likely, c.req.StopTokens)
		}
	}
	if ctx.Err() != nil {
		c.pool.release(l, nil)
		return nil, context.Cause(ctx)
	}
	if errors.Is(err, errRefused) {
		c.pool.release(l, nil)
		return refuse(fmt.Sprintf("%v: %s: %v", consumers.ErrBadRequest, l.server.name, err), false), nil
	}
	c.pool.release(l, err)
	if fault, is := errors.AsType[*emitError](err); is {
		return nil, fault.err
	}
	if len(c.told) > 0 && (err != nil || len(chunk.Tokens) < len(c.told)) {
		return c.goOnAfterTold(err), nil
	}
	if err != nil {
		c.failures++
		c.fault = err
		c.pool.metrics.Failed.Inc()
		c.pool.log.Debug("a call failed at a server", "server", l.server.name, "episode", c.req.Episode, "try", c.failures, "err", err)
		return &schemas.GenerateChunk{}, nil
	}
	if len(chunk.Tokens) > 0 {
		c.failures = 0
		c.tokens = append(c.tokens, chunk.Tokens...)
		told := len(c.told)
		chunk.Tokens, chunk.Logprobs, chunk.Versions = chunk.Tokens[told:], chunk.Logprobs[told:], chunk.Versions[told:]
	}
	if !chunk.Done && answer.Finish != FinishStop {
		c.pool.metrics.Cut.Inc()
		c.fault = fmt.Errorf("%s: the call was cut: %s", l.server.name, answer.Message)
		if len(chunk.Tokens) == 0 && len(c.told) == 0 {
			c.failures++
		}
	}
	return chunk, nil
}

// errRefused is a request that the server holds to be wrong.
var errRefused = errors.New("the server refuses the call")

// ask sends the call to the server of a lease, and gives it up when the server is silent for too long.
func (c *call) ask(l *lease, most int) (*Answer, error) {
	p := c.pool
	ctx, cancel := context.WithCancelCause(l.ctx)
	defer cancel(nil)
	stall := p.cfg.Server.StallTimeout
	var once sync.Mutex
	var timer *time.Timer
	watch := func() {
		once.Lock()
		defer once.Unlock()
		p.mu.Lock()
		paused := l.server.state.swapping
		p.mu.Unlock()
		if paused {
			timer.Reset(stall) // it stands still with all others
			return
		}
		cancel(fmt.Errorf("nothing came for inference.server.stall_timeout, %s", stall))
	}
	once.Lock()
	timer = time.AfterFunc(stall, watch)
	once.Unlock()
	defer timer.Stop()
	top := 0
	if c.watchesEnds() {
		top = Alternatives
	}
	a, err := l.server.speaker.Generate(ctx, &Query{
		ID: p.nextID(), Top: top, Episode: c.req.Episode, Salt: l.epoch.label,
		Tokens: c.tokens, MaxTokens: most, Temperature: c.req.Temperature, Stop: c.req.StopTokens,
		Each: c.emitArrived(l),
	}, func() {
		l.began.Store(true)
		timer.Reset(stall)
	})
	if n := Status(err); n == 400 || n == 413 || n == 422 {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	return a, err
}

// accept is the chunk of an answer: of the tokens that are vouched for. It fails where there is a fault in the answer or the server
// does not have the weights that it had.
func (c *call) accept(l *lease, a *Answer, limit int) (*schemas.GenerateChunk, error) {
	p := c.pool
	if err := a.whole(limit - len(c.tokens)); err != nil {
		return nil, err
	}
	p.mu.Lock()
	vocabulary, high := p.config.VocabSize, l.epoch.version
	if p.want != nil {
		high = max(high, p.want.Version, l.server.state.epoch.version)
	}
	p.hits += a.Cached
	p.mu.Unlock()
	if err := a.sound(vocabulary); err != nil {
		return nil, err
	}
	versions, err := c.vouch(l, a, high)
	if err != nil {
		return nil, err
	}
	n := a.vouched()
	chunk := &schemas.GenerateChunk{Tokens: a.Tokens[:n], Logprobs: a.Logprobs[:n], Versions: versions[:n]}
	// Servers end a call for reasons of their own: the request's are looked for in the tokens.
	for i, token := range chunk.Tokens {
		if slices.Contains(c.req.StopTokens, token) {
			if i+1 < n {
				return nil, fmt.Errorf("%w: %d tokens come after stop token %d", ErrMalformed, n-i-1, token)
			}
			chunk.Done, chunk.Stop = true, schemas.GenerateStopToken
		}
	}
	if !chunk.Done && len(c.tokens)+n >= limit {
		chunk.Done, chunk.Stop = true, schemas.GenerateLength
	}
	switch {
	case chunk.Done || n < len(a.Tokens) || a.Finish == FinishAborted || a.Finish == FinishError:
	case a.Finish == FinishStop && n > 0 && a.Matched != nil && *a.Matched == a.Tokens[n-1]:
		// The model's own end, which this request does not stop at: the call goes on after it, as it does in Weir's own engine.
	case a.Finish == FinishLength && n > 0 && a.Bound == n:
		// The server's context ends here: the next call knows before it asks.
		chunk.Done, chunk.Stop = true, schemas.GenerateLength
		l.server.learnBound(len(c.tokens) + n)
	default:
		return nil, fmt.Errorf("%w: finish_reason %q after %d tokens, none of them a stop: the server ends answers by a rule of its own", ErrMalformed, a.Finish, n)
	}
	return chunk, nil
}

// vouch is the version of each token of an answer. Without spans all are of the lease's epoch, which the server must still have
// had when the answer was whole.
func (c *call) vouch(l *lease, a *Answer, high int64) ([]int32, error) {
	if len(a.Tokens) == 0 {
		return nil, nil
	}
	if a.Spans != nil {
		return a.versions(c.pool.tag, l.epoch.version, high)
	}
	out := make([]int32, len(a.Tokens))
	for i := range out {
		out[i] = int32(l.epoch.version) //nolint:gosec // Swap refuses versions above
	}
	if a.Label != "" {
		if a.Label != l.epoch.label {
			return nil, fmt.Errorf("%w: it sampled with weights %q, and not with %q alone", errReplaced, a.Label, l.epoch.label)
		}
		return out, nil
	}
	err := l.server.stillHas(l)
	return out, err
}

// stillHas is nil when the server had the weights of a lease's epoch to the end of the call.
func (s *server) stillHas(l *lease) error {
	err := errors.New("the epoch is over")
	select {
	case <-l.epoch.sealed:
	default:
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(l.ctx))
		defer cancel(nil)
		defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
		if err = s.has(ctx, l.epoch.label); err == nil {
			return nil
		}
	}
	// A swap may have come between: then it has looked, before it changed anything.
	select {
	case <-l.epoch.sealed:
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		if l.epoch.held {
			return nil
		}
	default:
	}
	return err
}

// pause waits before the next attempt.
func (c *call) pause(ctx context.Context) error {
	timer := time.NewTimer(min(firstPause<<min(c.failures, 10), lastPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// learnBound notes the longest sequence that a server was seen to take.
func (s *server) learnBound(most int) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.state.maxTokens == 0 || most < s.state.maxTokens {
		s.state.maxTokens = most
	}
}

// nextID is the id of a request: no other of this Pool has it, so that a server never has two of one id under way.
func (p *Pool) nextID() string { return fmt.Sprintf("%s-%d", p.tag, p.requests.Add(1)) }
