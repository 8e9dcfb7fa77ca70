package generate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/schemas"
)

// ClientOptions say when a caller gives an engine up.
type ClientOptions struct {
	// Silence is how long an engine may send nothing before its call goes to another engine; 0 is 5 s. Engines that live send
	// something every second.
	Silence time.Duration
	// Retries is how often a call may go to another engine without a token gained; 0 is 10. Waiting for the first engine, or
	// for a full engine, does not count: that wait ends with the context alone.
	Retries int
	// Ending is closed when the caller is about to stop: a call that an engine serves goes on, and a call that no engine serves
	// fails with [ErrUnserved] rather than wait. A nil channel is never closed.
	Ending <-chan struct{}
	// MaxEpisodes bounds the episodes whose engine is remembered; 0 is 65536. The next call of a forgotten episode may go to
	// another engine, which costs a prefill.
	MaxEpisodes int
}

// Result holds the tokens that a call sampled.
type Result struct {
	// Tokens, Logprobs and Versions have an entry for each sampled token: its id, its log-probability under the distribution
	// that drew it, and the policy version.
	Tokens   []int32
	Logprobs []float32
	Versions []int32
	// Stop is GenerateStopToken, with the token the last of Tokens, or GenerateLength.
	Stop schemas.GenerateStop
	// Engine served the call, or the last part of it.
	Engine string
}

// Client calls the run's inference engines. It is safe for concurrent use.
type Client struct {
	run    Run
	opts   ClientOptions
	prefix string // of reply subjects, ends with a dot

	mu      sync.Mutex
	sub     *nats.Subscription
	closed  bool
	next    uint64
	calls   map[string]*replies // by the last token of the reply subject
	engines map[string]string   // by episode
}

// NewClient is a caller of the run's engines. It needs no closing when its connection is closed after it.
func NewClient(run Run, opts ClientOptions) *Client {
	if opts.Silence <= 0 {
		opts.Silence = 5 * time.Second
	}
	if opts.Retries <= 0 {
		opts.Retries = 10
	}
	if opts.MaxEpisodes <= 0 {
		opts.MaxEpisodes = 1 << 16
	}
	return &Client{
		run: run, opts: opts, prefix: run.NATS().NewInbox() + ".",
		calls: make(map[string]*replies), engines: make(map[string]string),
	}
}

// Close ends the calls that run with [streams.ErrClosed] and gives the subscription back.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.sub != nil {
		_ = c.sub.Unsubscribe() // fails only when the connection is gone, and the subscription with it
	}
	for _, r := range c.calls {
		r.wakeReader()
	}
}

// Generate continues req.Tokens by at most req.MaxTokens tokens. The request goes to the engine that served the episode before, if that
// engine lives; if an engine dies or stops in the middle, another engine continues after the tokens that came, so that each token comes
// once and none is sampled again. While there is no engine, or all engines are full, Generate waits. It fails with [ErrFailed] if the
// engines refuse the request, with [ErrUnserved] where no engine serves it and the caller is stopping, and with the context's error when
// the context ends first: the engine is then told to stop, and the tokens that were sampled until then come with the error, without a Stop.
//
// Invariant: whatever dies in between, the tokens are the tokens that a single engine would have sampled, each once.
func (c *Client) Generate(ctx context.Context, req *schemas.GenerateRequest) (*Result, error) {
	return c.GenerateProgress(ctx, req, nil)
}

// GenerateProgress is Generate, and calls progress with the tokens so far, without a Stop, whenever some have come. progress must not keep
// the result. nil is told nothing.
func (c *Client) GenerateProgress(ctx context.Context, req *schemas.GenerateRequest, progress func(*Result)) (*Result, error) {
	ask := *req
	if ask.Run == "" {
		ask.Run = c.run.Name()
	}
	if err := ask.Validate(); err != nil {
		return nil, err
	}
	out := new(Result)
	var t tries
	for {
		had := len(out.Tokens)
		end, err := c.attemptCall(ctx, &ask, req.MaxTokens, out, progress)
		if err != nil {
			return out.resultSoFar(ctx), err
		}
		if end.done {
			c.rememberEngine(&ask, out.Engine)
			return out, nil
		}
		c.leaveCall(ask.Cache())
		t.addOutcome(end, len(out.Tokens) > had)
		if t.failures > c.opts.Retries {
			return nil, fmt.Errorf("%w: episode %s: given up after %d engines: %w", ErrFailed, req.Episode, t.failures, t.fault)
		}
		if stop, over := finishedStop(req, out.Tokens); over { // all tokens came, and the end of the last chunk was lost
			out.Stop = stop
			return out, nil
		}
		if c.isEnding() && (end.waited > 0 || end.busy) {
			return nil, fmt.Errorf("%w: episode %s: the caller is stopping", ErrUnserved, req.Episode)
		}
		ask.Tokens = append(slices.Clip(req.Tokens), out.Tokens...)
		ask.MaxTokens = req.MaxTokens - len(out.Tokens)
		if err := c.pauseRetry(ctx, t.countDoublings(end), t.longestPause()); err != nil {
			return out.resultSoFar(ctx), err
		}
	}
}

// resultSoFar holds the tokens that came before the context ended; nil where no token came, or the context goes on.
func (r *Result) resultSoFar(ctx context.Context) *Result {
	if ctx.Err() == nil || len(r.Tokens) == 0 {
		return nil
	}
	return r
}

// tries counts the attempts of a call that did not end it.
type tries struct {
	failures int // of engines, since a token was last gained
	busy     int // full engines in a row
	fault    error
}

func (t *tries) addOutcome(end outcome, gained bool) {
	if gained {
		t.failures = 0
	}
	if end.counts {
		t.failures++
		t.fault = end.fault
	}
	if t.busy++; !end.busy {
		t.busy = 0
	}
}

// countDoublings is how often the pause before the next attempt is doubled.
func (t *tries) countDoublings(end outcome) int { return max(t.failures, end.waited, t.busy) }

// longestPause is the longest pause before the next attempt.
func (t *tries) longestPause() time.Duration {
	if t.busy > 0 {
		return busyMax
	}
	return pauseMax
}

// Forget tells every engine that the episode will not call again. Call it when an episode ends, unless its last
// request said so.
func (c *Client) Forget(episode string) error {
	c.leaveCall(episode)
	return c.notifyAttempt(opForget, episode)
}

// finishedStop says whether tokens already are all that the request asked for.
func finishedStop(req *schemas.GenerateRequest, tokens []int32) (schemas.GenerateStop, bool) {
	if n := len(tokens); n > 0 && slices.Contains(req.StopTokens, tokens[n-1]) {
		return schemas.GenerateStopToken, true
	}
	return schemas.GenerateLength, len(tokens) >= req.MaxTokens
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func (c *Client) notifyAttempt(op, data string) error {
	m := nats.NewMsg(controlSubject(c.run.GenerateSubject()))
	m.Header.Set(headerOp, op)
	m.Data = []byte(data)
	if err := c.run.NATS().PublishMsg(m); err != nil {
		return fmt.Errorf("tell the engines to %s: %w", op, err)
	}
	return nil
}

func (c *Client) engineOf(episode string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.engines[episode]
}

func (c *Client) leaveCall(episode string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.engines, episode)
}

// rememberEngine sends the episode's next call to the same engine.
func (c *Client) rememberEngine(req *schemas.GenerateRequest, engine string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if req.Last {
		delete(c.engines, req.Cache())
		return
	}
	if _, known := c.engines[req.Cache()]; !known && len(c.engines) >= c.opts.MaxEpisodes {
		for episode := range c.engines {
			delete(c.engines, episode)
			break
		}
	}
	c.engines[req.Cache()] = engine
}

// The longest pauses before another try. Where every engine is full, thousands of calls may wait: they ask seldom.
const (
	pauseMin = 10 * time.Millisecond
	pauseMax = time.Second
	busyMax  = 5 * time.Second
)

// isEnding says whether the caller is about to stop.
func (c *Client) isEnding() bool {
	select {
	case <-c.opts.Ending:
		return true
	default:
		return false
	}
}

// pauseRetry waits before another try: pauseMin doubled n-1 times, at most longest, with jitter so that callers part. n = 0
// does not wait. The caller's stopping ends it.
func (c *Client) pauseRetry(ctx context.Context, n int, longest time.Duration) error {
	if n <= 0 {
		return nil
	}
	d := min(pauseMin<<min(n-1, 10), longest)
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.opts.Ending:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
