package generate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// ClientOptions say when a caller gives an engine up.
type ClientOptions struct {
	// Silence is how long an engine may say nothing before its call goes on elsewhere; 0 is 5 s. Engines that live
	// send something every second.
	Silence time.Duration
	// Retries is how often one call may go elsewhere without a token gained; 0 is 10. Waiting for the first engine to
	// appear, or for one that is full, does not count: that ends with the context alone.
	Retries int
	// Ending is closed when the caller is about to stop: a call that an engine serves goes on, and one that none does fails
	// with [ErrUnserved] rather than wait. nil never is.
	Ending <-chan struct{}
	// MaxEpisodes bounds the episodes whose engine is remembered; 0 is 65536. A forgotten one still works: it
	// costs a prefill.
	MaxEpisodes int
}

// Result is what one call sampled.
type Result struct {
	// Tokens, Logprobs and Versions have one entry a sampled token: its id, its log-probability under the distribution
	// that drew it, and the policy version.
	Tokens   []int32
	Logprobs []float32
	Versions []int32
	// Stop is GenerateStopToken, with the token the last of Tokens, or GenerateLength.
	Stop schemas.GenerateStop
	// Engine served the call, its last part if several did.
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
func (g *Client) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.sub != nil {
		_ = g.sub.Unsubscribe() // fails only when the connection is gone, and the subscription with it
	}
	for _, c := range g.calls {
		c.wake()
	}
}

// Generate continues req.Tokens by at most req.MaxTokens tokens. It goes to the engine that served the episode
// before, if that lives; if an engine dies or stops in the middle, another continues after the tokens that
// came, so each token comes once and none is sampled again. Without any engine, and while the engines are full, it waits. It fails with
// [ErrFailed] if the engines refuse, with [ErrUnserved] where no engine serves it and the caller is stopping, and with the context's error when that ends first: the engine is then told
// to stop.
//
// Invariant: whatever dies in between, the tokens are those that one engine would have sampled, each once.
func (g *Client) Generate(ctx context.Context, req *schemas.GenerateRequest) (*Result, error) {
	ask := *req
	if ask.Run == "" {
		ask.Run = g.run.Name()
	}
	if err := ask.Validate(); err != nil {
		return nil, err
	}
	out := new(Result)
	var fault error
	failures, busy := 0, 0
	for {
		had := len(out.Tokens)
		end, err := g.attempt(ctx, &ask, req, out)
		switch {
		case err != nil:
			return nil, err
		case end.done:
			g.remember(&ask, out.Engine)
			return out, nil
		}
		g.leave(ask.Episode)
		if len(out.Tokens) > had {
			failures = 0
		}
		if end.counts {
			failures++
			fault = end.fault
		}
		if busy++; !end.busy {
			busy = 0
		}
		if failures > g.opts.Retries {
			return nil, fmt.Errorf("%w: episode %s: given up after %d engines: %w", ErrFailed, req.Episode, failures, fault)
		}
		if stop, over := finished(req, out.Tokens); over {
			// Only the word that it was the last chunk got lost.
			out.Stop = stop
			return out, nil
		}
		if g.ending() && (end.waited > 0 || end.busy) {
			return nil, fmt.Errorf("%w: episode %s: the caller is stopping", ErrUnserved, req.Episode)
		}
		ask.Tokens = append(slices.Clip(req.Tokens), out.Tokens...)
		ask.MaxTokens = req.MaxTokens - len(out.Tokens)
		longest := pauseMax
		if busy > 0 {
			longest = busyMax
		}
		if err := g.pause(ctx, max(failures, end.waited, busy), longest); err != nil {
			return nil, err
		}
	}
}

// Forget tells every engine that the episode will not call again. Call it when an episode ends, unless its last
// request said so.
func (g *Client) Forget(episode string) error {
	g.leave(episode)
	return g.tell(opForget, episode)
}

// finished says whether tokens already are all that the request asked for.
func finished(req *schemas.GenerateRequest, tokens []int32) (schemas.GenerateStop, bool) {
	if n := len(tokens); n > 0 && slices.Contains(req.StopTokens, tokens[n-1]) {
		return schemas.GenerateStopToken, true
	}
	return schemas.GenerateLength, len(tokens) >= req.MaxTokens
}

// attemptEnd is how one engine's part of a call ended.
type attemptEnd struct {
	done   bool
	counts bool  // a failure of an engine, not the lack of one
	busy   bool  // the engine had no room
	waited int   // how long to wait before the next, in doublings
	fault  error // why not done
}

// attempt sends the request once and gathers what comes of it into out.
func (g *Client) attempt(ctx context.Context, ask, req *schemas.GenerateRequest, out *Result) (attemptEnd, error) {
	c, reply, err := g.open()
	if err != nil {
		return attemptEnd{}, err
	}
	over := false
	defer func() {
		g.forgetCall(reply)
		if !over {
			_ = g.tell(opCancel, reply) // an engine that does not hear it samples to the end for nobody
		}
	}()

	data, err := schemas.Marshal(ask)
	if err != nil {
		return attemptEnd{}, err
	}
	if limit := g.run.NATS().MaxPayload(); int64(len(data)) > limit {
		over = true
		return attemptEnd{}, fmt.Errorf("%w: a generate call of %d bytes, the broker takes %d", streams.ErrTooLarge, len(data), limit)
	}
	direct := g.engineOf(ask.Episode)
	subject := g.run.GenerateSubject()
	if direct != "" {
		subject = engineSubject(subject, direct)
	}
	call := &nats.Msg{Subject: subject, Reply: reply, Header: nats.Header{headerCall: {reply}}, Data: data}
	if err := g.run.NATS().PublishMsg(call); err != nil {
		over = true
		if streams.IsTransient(err) {
			return attemptEnd{waited: 5, fault: err}, nil
		}
		return attemptEnd{}, fmt.Errorf("send a generate call: %w", err)
	}

	silence := time.NewTimer(g.opts.Silence)
	defer silence.Stop()
	want := 0
	chunk := new(schemas.GenerateChunk)
	for {
		for _, m := range c.take() {
			if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
				over = true
				// The engine that had the episode is gone: ask the others at once. No engine at all: wait for one.
				if direct != "" {
					return attemptEnd{}, nil
				}
				return attemptEnd{waited: 5}, nil
			}
			if err := g.read(m, ask, chunk); err != nil {
				return attemptEnd{counts: true, fault: err}, nil
			}
			if chunk.Index != want {
				return attemptEnd{counts: true, fault: fmt.Errorf("engine %s: chunk %d came instead of %d", chunk.Engine, chunk.Index, want)}, nil
			}
			want++
			silence.Reset(g.opts.Silence)
			out.Engine = chunk.Engine
			room := req.MaxTokens - len(out.Tokens)
			if len(chunk.Tokens) > room {
				return attemptEnd{}, fmt.Errorf("%w: engine %s sent %d tokens more than asked for", ErrFailed, chunk.Engine, len(chunk.Tokens)-room)
			}
			out.Tokens = append(out.Tokens, chunk.Tokens...)
			out.Logprobs = append(out.Logprobs, chunk.Logprobs...)
			out.Versions = append(out.Versions, chunk.Versions...)
			if !chunk.Done {
				continue
			}
			over = true
			if chunk.Stop != schemas.GenerateError {
				out.Stop = chunk.Stop
				return attemptEnd{done: true}, nil
			}
			fault := fmt.Errorf("engine %s: %s", chunk.Engine, chunk.Error)
			if !chunk.Retry {
				return attemptEnd{}, fmt.Errorf("%w: episode %s: %w", ErrFailed, req.Episode, fault)
			}
			return attemptEnd{counts: !chunk.Busy, busy: chunk.Busy, fault: fault}, nil
		}
		select {
		case <-ctx.Done():
			return attemptEnd{}, context.Cause(ctx)
		case <-c.ready:
			if g.isClosed() {
				return attemptEnd{}, fmt.Errorf("generate call: %w", streams.ErrClosed)
			}
		case <-silence.C:
			if !g.run.NATS().IsConnected() {
				// It is the broker that is away, and no engine's fault.
				return attemptEnd{waited: 5}, nil
			}
			return attemptEnd{counts: true, fault: fmt.Errorf("engine %q silent for %s", out.Engine, g.opts.Silence)}, nil
		}
	}
}

// read checks that a chunk is well formed and of this call.
func (g *Client) read(m *nats.Msg, ask *schemas.GenerateRequest, chunk *schemas.GenerateChunk) error {
	if err := schemas.Unmarshal(m.Data, chunk); err != nil {
		return err
	}
	if err := chunk.Validate(); err != nil {
		return err
	}
	if chunk.Episode != ask.Episode && chunk.Episode != unknownEpisode {
		return fmt.Errorf("engine %s answered for episode %s", chunk.Engine, chunk.Episode)
	}
	return nil
}

// open starts listening for one attempt's chunks.
func (g *Client) open() (*replies, string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, "", fmt.Errorf("generate call: %w", streams.ErrClosed)
	}
	if g.sub == nil {
		sub, err := g.run.NATS().Subscribe(g.prefix+"*", g.receive)
		if err != nil {
			return nil, "", fmt.Errorf("subscribe to replies: %w", err)
		}
		g.sub = sub
	}
	token := strconv.FormatUint(g.next, 36)
	g.next++
	c := &replies{ready: make(chan struct{}, 1)}
	g.calls[token] = c
	return c, g.prefix + token, nil
}

func (g *Client) receive(m *nats.Msg) {
	token := strings.TrimPrefix(m.Subject, g.prefix)
	g.mu.Lock()
	c := g.calls[token]
	g.mu.Unlock()
	if c != nil {
		c.put(m)
	}
}

func (g *Client) forgetCall(reply string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.calls, strings.TrimPrefix(reply, g.prefix))
}

func (g *Client) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *Client) tell(op, data string) error {
	m := nats.NewMsg(controlSubject(g.run.GenerateSubject()))
	m.Header.Set(headerOp, op)
	m.Data = []byte(data)
	if err := g.run.NATS().PublishMsg(m); err != nil {
		return fmt.Errorf("tell the engines to %s: %w", op, err)
	}
	return nil
}

func (g *Client) engineOf(episode string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.engines[episode]
}

func (g *Client) leave(episode string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.engines, episode)
}

// remember sends the episode's next call to the same engine.
func (g *Client) remember(req *schemas.GenerateRequest, engine string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if req.Last {
		delete(g.engines, req.Episode)
		return
	}
	if _, known := g.engines[req.Episode]; !known && len(g.engines) >= g.opts.MaxEpisodes {
		for episode := range g.engines {
			delete(g.engines, episode)
			break
		}
	}
	g.engines[req.Episode] = engine
}

// replies queues the chunks of one attempt. It never makes the connection's reader wait; the tokens asked for
// bound it.
type replies struct {
	ready chan struct{}
	mu    sync.Mutex
	in    []*nats.Msg
	out   []*nats.Msg
}

func (r *replies) put(m *nats.Msg) {
	r.mu.Lock()
	r.in = append(r.in, m)
	r.mu.Unlock()
	r.wake()
}

func (r *replies) wake() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// take is what came since; good until the next call.
func (r *replies) take() []*nats.Msg {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.in, r.out = r.out[:0], r.in
	return r.out
}

// The longest pauses before another try. Where every engine is full, thousands of calls may wait: they ask seldom.
const (
	pauseMin = 10 * time.Millisecond
	pauseMax = time.Second
	busyMax  = 5 * time.Second
)

// ending says whether the caller is about to stop.
func (g *Client) ending() bool {
	select {
	case <-g.opts.Ending:
		return true
	default:
		return false
	}
}

// pause waits before another try: pauseMin doubled n-1 times, at most longest, with jitter so that callers part. n = 0
// does not wait. The caller's stopping ends it.
func (g *Client) pause(ctx context.Context, n int, longest time.Duration) error {
	if n <= 0 {
		return nil
	}
	d := min(pauseMin<<min(n-1, 10), longest)
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-g.opts.Ending:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
