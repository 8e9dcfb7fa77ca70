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

// call is a generate request on its way through servers.
type call struct {
	pool *Pool
	req  *schemas.GenerateRequest
	// tokens are the context and the sampled tokens, limit the length at which generation ends.
	tokens []int32
	limit  int
	// failures counts since a token was last gained; fault is the last.
	failures int
	fault    error
	// emit takes chunks. follows is whether they have tokens before anybody vouches for these.
	emit    func(*schemas.GenerateChunk) error
	follows bool
	// told are the tokens of the answer under way that were emitted.
	told []int32
	// refusal is a server's that no other server has judged yet; nil for none.
	refusal *refusal
}

// Generate serves a call: at a single server, or at several in turn when servers end it. Each chunk has the tokens of a single server,
// vouched for: when its answer is whole, and before that whenever the server was seen to have its weights still.
func (p *Pool) Generate(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	return p.serveCall(ctx, req, emit, false)
}

// Stream is Generate for a reader that follows along: tokens go out as they come, before they are vouched for. They are
// not for training.
func (p *Pool) Stream(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	return p.serveCall(ctx, req, emit, true)
}

func (p *Pool) serveCall(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error, follows bool) error {
	c, refused := p.newCall(req)
	if c != nil {
		c.emit, c.follows = emit, follows
	}
	for refused == nil {
		chunk, err := c.attemptOnce(ctx)
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
			refused = refusalChunk(fmt.Sprintf("%d servers in a row have failed the call: %v", c.failures, c.fault), true)
		default:
			if err := c.pauseBeforeRetry(ctx); err != nil {
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
		return nil, refusalChunk(fmt.Errorf("%w: "+format, append([]any{consumers.ErrBadRequest}, args...)...).Error(), false)
	}
	if version < 0 {
		return nil, busyChunk("no weights yet")
	}
	switch t, coldest := req.Temperature, coldestOf(p.kind); {
	case len(req.Tokens) == 0:
		return bad("no tokens")
	case req.MaxTokens <= 0:
		return bad("max_tokens is %d: must be positive", req.MaxTokens)
	case !(t == 0 || t >= coldest && t <= gpu.MaxTemperature):
		return bad("temperature is %g: must be 0, or between %g and %g", t, coldest, gpu.MaxTemperature)
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

// attemptOnce has a server go on with the call. The chunk is empty where the attempt failed; an error is the caller's end.
func (c *call) attemptOnce(ctx context.Context) (*schemas.GenerateChunk, error) {
	l, refused, err := c.pool.takePlace(ctx, c.req, c.refusal.refuser())
	if errors.Is(err, errNoOther) {
		return c.refuseAlone(), nil
	}
	if l == nil {
		return refused, err
	}
	limit := c.limitAt(l.server)
	if len(c.tokens) >= limit {
		c.pool.releasePlace(l)
		return &schemas.GenerateChunk{Done: true, Stop: schemas.GenerateLength}, nil
	}
	c.told = nil
	answer, err := c.askServer(l, limit-len(c.tokens))
	var chunk *schemas.GenerateChunk
	if err == nil {
		if chunk, err = c.acceptAnswer(l, answer, limit); err == nil {
			l.server.countEnds(chunk.Tokens, answer.Likely, c.req.StopTokens)
		}
	}
	c.pool.releasePlace(l)
	if ctx.Err() != nil {
		if l.arrived.Load() > 0 {
			c.pool.judgeServer(l.server, l.epoch, nil)
		}
		return nil, context.Cause(ctx)
	}
	if errors.Is(err, errRefused) {
		return c.noteRefusal(l, err), nil
	}
	fault := err
	if err == nil && !chunk.Done && len(chunk.Tokens) == 0 && len(c.told) == 0 {
		fault = fmt.Errorf("%w: it ended with %q after %d: %s", errNoToken, answer.Finish, len(answer.Tokens), answer.Message)
	}
	c.pool.judgeServer(l.server, l.epoch, fault)
	if gone, is := errors.AsType[*emitError](err); is {
		return nil, gone.err
	}
	if len(c.told) > 0 && (err != nil || len(chunk.Tokens) < len(c.told)) {
		return c.goOnAfterEmitted(err), nil
	}
	if err != nil {
		c.noteFailure(l.server, err)
		c.pool.metrics.Failed.Inc()
		return &schemas.GenerateChunk{}, nil
	}
	if fault != nil {
		c.noteFailure(l.server, fault)
	}
	if len(chunk.Tokens) > 0 {
		c.blameRefuser()
		c.failures = 0
		c.tokens = append(c.tokens, chunk.Tokens...)
		told := len(c.told)
		chunk.Tokens, chunk.Logprobs, chunk.Versions = chunk.Tokens[told:], chunk.Logprobs[told:], chunk.Versions[told:]
	}
	if !chunk.Done && (answer.Finish != FinishStop || fault != nil) {
		c.pool.metrics.Cut.Inc()
	}
	return chunk, nil
}

// noteFailure counts an attempt without a new token.
func (c *call) noteFailure(s *server, err error) {
	c.failures++
	c.fault = fmt.Errorf("%s: %w", s.name, err)
	c.pool.log.Debug("a call failed at a server", "server", s.name, "episode", c.req.Episode, "try", c.failures, "err", err)
}

// limitAt is the length at which the call ends at a server.
func (c *call) limitAt(s *server) int {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if most := s.state.lengths.most; most > 0 {
		return min(c.limit, most)
	}
	return c.limit
}

// errNoToken is an answer that the call gains nothing by: it has no token, or its first token has no log-probability.
var errNoToken = errors.New("the answer has no token with a log-probability")

// askServer sends the call to the server of a lease, and gives it up when the server sends no token for too long.
func (c *call) askServer(l *lease, most int) (*Answer, error) {
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
		cancel(fmt.Errorf("no token came for inference.server.stall_timeout, %s", stall))
	}
	once.Lock()
	timer = time.AfterFunc(stall, watch)
	once.Unlock()
	defer timer.Stop()
	emit := c.emitArrived(l)
	took := func(a *Answer) error {
		if l.arrived.Load() < int64(len(a.Tokens)) { // an event without a token is no life
			timer.Reset(stall)
			c.blameRefuser()
		}
		return emit(a)
	}
	top := 0
	if c.watchesEnds(l.server) {
		top = Alternatives
	}
	a, err := l.server.speaker.Generate(ctx, &Query{
		ID: p.nextRequestID(), Top: top, Episode: c.req.Episode, Salt: l.epoch.label,
		Tokens: c.tokens, MaxTokens: most, Temperature: c.req.Temperature, Stop: c.req.StopTokens,
		Each: took,
	}, func() { l.began.Store(true) })
	if n := Status(err); n == 400 || n == 413 || n == 422 {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	return a, err
}

// acceptAnswer is the chunk of an answer, with the tokens that are vouched for. It fails where there is a fault in the answer or the server
// does not have the weights that it had.
func (c *call) acceptAnswer(l *lease, a *Answer, limit int) (*schemas.GenerateChunk, error) {
	p := c.pool
	if err := a.checkShape(limit - len(c.tokens)); err != nil {
		return nil, err
	}
	p.mu.Lock()
	vocabulary, high := p.config.VocabSize, l.epoch.version
	if p.want != nil {
		high = max(high, p.want.Version, l.server.state.epoch.version)
	}
	p.hits += a.Cached
	p.mu.Unlock()
	if err := a.checkValues(vocabulary); err != nil {
		return nil, err
	}
	versions, err := c.vouchVersions(l, a, high)
	if err != nil {
		return nil, err
	}
	n := a.countVouched()
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
		if err := l.server.learnBound(len(c.tokens) + n); err != nil {
			return nil, err
		}
		chunk.Done, chunk.Stop = true, schemas.GenerateLength
	default:
		return nil, fmt.Errorf("%w: finish_reason %q after %d tokens, none of them a stop: the server ends answers by a rule of its own", ErrMalformed, a.Finish, n)
	}
	return chunk, nil
}

// vouchVersions is the version of each token of an answer. Without spans all are of the lease's epoch, which the server must still have
// had when the answer was whole. Invariant: an answer without spans that ended in a later epoch, to which calls went on, is tried again.
func (c *call) vouchVersions(l *lease, a *Answer, high int64) ([]int32, error) {
	if len(a.Tokens) == 0 {
		return nil, nil
	}
	if a.Spans != nil {
		versions, err := a.tokenVersions(c.pool.tag, l.epoch.version, high)
		if err == nil {
			err = l.awaitAdmission(int64(versions[len(versions)-1]))
		}
		return versions, err
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
	err := l.server.checkStillHas(l)
	return out, err
}

// awaitAdmission waits until the server is admitted with a version that it samples with already, and is nil then: a load that is verified
// may turn out to have left tensors of the version before.
func (l *lease) awaitAdmission(version int64) error {
	for version > l.epoch.version {
		l.server.pool.mu.Lock()
		settled, changed := !l.server.state.swapping || version <= l.server.state.epoch.version, l.server.pool.changed
		l.server.pool.mu.Unlock()
		if l.ctx.Err() != nil || settled {
			return context.Cause(l.ctx)
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
		}
	}
	return nil
}

// errUnnamed is an answer that other weights may have sampled a part of, and that does not name them, though the server's answers did.
var errUnnamed = errors.New("the answer does not name the weights of its tokens, and the server was given others meanwhile")

// checkStillHas is nil when the server had the weights of a lease's epoch to the end of the call.
func (s *server) checkStillHas(l *lease) error {
	err := errors.New("the epoch is over")
	select {
	case <-l.epoch.sealed:
	default:
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(l.ctx))
		defer cancel(nil)
		defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
		if err = s.checkLabel(ctx, l.epoch.label); err == nil {
			return nil
		}
	}
	// A swap may have come between: then it has looked, before it changed anything.
	select {
	case <-l.epoch.sealed:
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		switch {
		case l.epoch.held && l.epoch.crossed:
			return errUnnamed
		case l.epoch.held:
			return nil
		}
	default:
	}
	return err
}

// pauseBeforeRetry waits before the next attempt.
func (c *call) pauseBeforeRetry(ctx context.Context) error {
	timer := time.NewTimer(min(firstPause<<min(c.failures, 10), lastPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// nextRequestID is the id of a request: no other request of this Pool has it, so that a server never has two requests with the same id.
func (p *Pool) nextRequestID() string { return fmt.Sprintf("%s-%d", p.tag, p.requests.Add(1)) }
