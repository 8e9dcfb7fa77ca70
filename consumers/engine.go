package consumers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
)

// Engine batches generate calls continuously over one decoder. Make it with NewEngine, run it with Run, give it
// weights with Swap; calls are refused with Retry until the first.
type Engine struct {
	cfg        Config
	newDecoder NewDecoder
	metrics    *Metrics
	log        *slog.Logger

	model   atomic.Pointer[model]
	version atomic.Int64
	wake    chan struct{} // holds one: there is something to do
	drained chan struct{} // closed when Drain was asked for and nothing is left
	stopped chan struct{} // closed when Run has returned
	swapper chan struct{} // holds one: a Swap is under way
	behind  time.Duration // how long a call waits for newer weights before it is sent elsewhere

	mu      sync.Mutex
	waiting []*call
	free    int // calls that could have been running and were not when the last were admitted
	pending *swap
	forget  []string // episodes that will not call again
	closed  bool     // no more calls are taken

	// Owned by Run.
	sched *scheduler
}

// NewDecoder makes the decoder of a model over its first weights; [gpu.Backend] has one.
type NewDecoder func(gpu.Config, *gpu.Weights, gpu.DecoderOptions) (gpu.Decoder, error)

// model is what never changes once the first weights have come.
type model struct {
	config gpu.Config
	maxLen int
	// shapes are those of the first weights.
	shapes map[string][]int
	// dec is Run's, but for Prepare, which is Swap's.
	dec gpu.Decoder
}

// NewEngine makes an engine that holds no model yet. cfg must be valid.
func NewEngine(cfg Config, newDecoder NewDecoder, m *Metrics, log *slog.Logger) *Engine {
	e := &Engine{
		cfg: cfg, newDecoder: newDecoder, metrics: m, log: log,
		wake: make(chan struct{}, 1), drained: make(chan struct{}), stopped: make(chan struct{}),
		swapper: make(chan struct{}, 1), behind: maxBehind, free: cfg.running(),
	}
	e.version.Store(-1)
	return e
}

// maxBehind is time enough to fetch the weights that a call waits for, if they can be had.
const maxBehind = time.Minute

// Version is the policy version in use; -1 before the first.
func (e *Engine) Version() int64 { return e.version.Load() }

// Generate serves one call: it gives emit the chunks as they come, in order, from this goroutine, and returns after
// the last, which has Done set. What the engine refuses is told in that chunk, not as an error. An error means that
// the call was dropped: ctx ended or emit failed.
func (e *Engine) Generate(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	return e.generate(ctx, req, e.cfg.ChunkTokens, emit)
}

// Stream is Generate for somebody who reads along: each token is given to emit as it is sampled, together with those that
// came while emit was busy.
func (e *Engine) Stream(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	return e.generate(ctx, req, 1, emit)
}

func (e *Engine) generate(ctx context.Context, req *schemas.GenerateRequest, chunk int, emit func(*schemas.GenerateChunk) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, refusal := e.submitInChunks(ctx, req, chunk)
	if refusal != nil {
		return e.send(req, refusal, 0, emit)
	}
	var behind <-chan time.Time
	if e.Version() < req.MinVersion {
		timer := time.NewTimer(e.behind)
		defer timer.Stop()
		behind = timer.C
	}
	for index := 0; ; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("generate for episode %q: %w", req.Episode, context.Cause(ctx))
		case <-behind:
			if refusal := e.giveUp(c); refusal != nil {
				return e.send(req, refusal, index, emit)
			}
		case <-c.notify:
			chunk := c.take()
			if err := e.send(req, chunk, index, emit); err != nil || chunk.Done {
				return err
			}
			index++
		}
	}
}

// giveUp takes a call that still waits for newer weights out of the queue and returns the chunk that refuses it. It
// returns nil where they have come, or the call has ended.
func (e *Engine) giveUp(c *call) *schemas.GenerateChunk {
	e.mu.Lock()
	defer e.mu.Unlock()
	v := e.Version()
	at := slices.Index(e.waiting, c)
	if v >= c.req.MinVersion || at < 0 {
		return nil
	}
	e.waiting = slices.Delete(e.waiting, at, at+1)
	return e.refuse(fmt.Sprintf("has version %d and waited %s for version %d", v, e.behind, c.req.MinVersion), true)
}

func (e *Engine) send(req *schemas.GenerateRequest, chunk *schemas.GenerateChunk, index int, emit func(*schemas.GenerateChunk) error) error {
	chunk.Episode, chunk.Engine, chunk.Index = req.Episode, e.cfg.Name, index
	if err := emit(chunk); err != nil {
		return fmt.Errorf("send chunk %d of episode %q: %w", index, req.Episode, err)
	}
	return nil
}

// submit queues the call, or returns the chunk that refuses it.
func (e *Engine) submit(ctx context.Context, req *schemas.GenerateRequest) (*call, *schemas.GenerateChunk) {
	return e.submitInChunks(ctx, req, e.cfg.ChunkTokens)
}

// submitInChunks is submit for a call whose tokens are handed over so many at a time.
func (e *Engine) submitInChunks(ctx context.Context, req *schemas.GenerateRequest, chunk int) (*call, *schemas.GenerateChunk) {
	m := e.model.Load()
	if m == nil {
		return nil, e.busy("no weights yet")
	}
	c, room, err := newCall(ctx, req, m.config.VocabSize, m.maxLen)
	if err != nil {
		return nil, e.refuse(err.Error(), false)
	}
	if !room {
		e.ended(string(schemas.GenerateLength))
		return nil, &schemas.GenerateChunk{Done: true, Stop: schemas.GenerateLength}
	}
	c.chunk = chunk
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, e.refuse("the engine is stopping", true)
	}
	// Those that can start at the next step do not count as waiting.
	if room := e.cfg.Queue + e.free; len(e.waiting) >= room {
		e.waiting = slices.DeleteFunc(e.waiting, func(c *call) bool { return c.ctx.Err() != nil })
		if len(e.waiting) >= room {
			return nil, e.busy(fmt.Sprintf("%d calls are waiting already", e.cfg.Queue))
		}
	}
	e.waiting = append(e.waiting, c)
	e.stir()
	return c, nil
}

// refuse is the chunk that ends a call unserved.
func (e *Engine) refuse(reason string, retry bool) *schemas.GenerateChunk {
	e.ended(string(schemas.GenerateError))
	return &schemas.GenerateChunk{Done: true, Stop: schemas.GenerateError, Error: reason, Retry: retry}
}

// busy is the chunk that ends a call for which there is no room yet.
func (e *Engine) busy(reason string) *schemas.GenerateChunk {
	chunk := e.refuse(reason, true)
	chunk.Busy = true
	return chunk
}

// stir wakes Run.
func (e *Engine) stir() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Run steps the decoder until ctx ends, then ends what is left with Retry. It returns an error when the
// decoder fails. Run may be called once.
func (e *Engine) Run(ctx context.Context) error {
	err := e.loop(ctx)
	e.stop(err)
	return err
}

func (e *Engine) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		busy, err := e.turn(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case !busy:
			select {
			case <-ctx.Done():
			case <-e.wake:
			}
		}
	}
	return nil
}

// turn is what happens between two steps and, if any sequence runs, a step. It says whether one did.
func (e *Engine) turn(ctx context.Context) (busy bool, err error) {
	e.cancelled()
	e.forgotten()
	e.applySwap()
	if err := e.admit(); err != nil {
		return false, err
	}
	e.observe()
	if e.sched == nil || len(e.sched.running) == 0 {
		return false, nil
	}
	return true, e.step(ctx)
}

// cancelled drops the running calls whose callers have gone. Their caches stay: the caller may ask again.
func (e *Engine) cancelled() {
	if e.sched == nil {
		return
	}
	var any bool
	for _, seq := range e.sched.running {
		if seq.call.ctx.Err() != nil {
			e.sched.leave(seq, true)
			e.ended("cancelled")
			any = true
		}
	}
	if any {
		e.sched.retire()
	}
}

// ended counts a call that has ended, by why.
func (e *Engine) ended(why string) { e.metrics.calls.WithLabelValues(why).Inc() }

// Forget frees the cache of an episode that will not call again, once its call, if it has one, has ended.
func (e *Engine) Forget(episode string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// One too many is left to eviction.
	if len(e.forget) < maxForget {
		e.forget = append(e.forget, episode)
		e.stir()
	}
}

// maxForget bounds the episodes to forget between two steps.
const maxForget = 4096

func (e *Engine) forgotten() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sched != nil {
		for _, episode := range e.forget {
			e.sched.drop(episode)
		}
	}
	e.forget = e.forget[:0]
}

// admit starts waiting calls, first come first served, while there are slots, and drops those whose callers have
// gone. Calls that want newer weights go on waiting. None starts while a swap waits for the running calls to finish.
func (e *Engine) admit() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sched == nil || e.pending != nil {
		return nil
	}
	e.sched.want(e.waiting)
	var failed error
	left, full := e.waiting[:0], false
	for _, c := range e.waiting {
		if c.ctx.Err() != nil {
			e.ended("cancelled")
			continue
		}
		switch late := c.req.MinVersion > e.version.Load(); {
		case late && e.closed:
			c.fail("the engine is stopping", true)
			e.ended(string(schemas.GenerateError))
			continue
		case late || full:
			left = append(left, c)
			continue
		}
		ok, err := e.sched.admit(c)
		if err != nil {
			failed = err
		}
		if !ok {
			left, full = append(left, c), true
		}
	}
	clear(e.waiting[len(left):])
	e.waiting = left
	e.free = e.cfg.running() - len(e.sched.running)
	return failed
}

// step extends the running sequences by what the plan says and samples where a context is complete.
func (e *Engine) step(ctx context.Context) error {
	started := time.Now()
	s := e.sched
	s.plan()
	results, err := s.dec.Extend(ctx, s.batch)
	if err != nil {
		return fmt.Errorf("extend %d sequences: %w", len(s.batch), err)
	}
	version := int32(e.version.Load())
	var sampled, prefilled, total int
	var ended bool
	for i, seq := range s.owner {
		n := len(s.batch[i].Tokens)
		total += n
		prefilled += max(0, min(seq.cached+n, len(seq.call.req.Tokens))-seq.cached)
		seq.cached += n
		if s.batch[i].Sample {
			sampled++
			ended = e.add(seq, &results[i], version) || ended
		}
	}
	if ended {
		s.retire()
	}
	e.metrics.sampled.Add(float64(sampled))
	e.metrics.prefilled.Add(float64(prefilled))
	e.metrics.batchSize.Observe(float64(len(results)))
	e.metrics.batchTokens.Observe(float64(total))
	e.metrics.stepSeconds.Observe(time.Since(started).Seconds())
	return nil
}

// add gives a sequence its next token and says whether its call has ended.
func (e *Engine) add(seq *sequence, next *gpu.Sampled, version int32) bool {
	c := seq.call
	if next.Err != nil {
		c.fail(fmt.Sprintf("sample token %d with weights of version %d: %v", len(c.context), version, next.Err), false)
		e.sched.leave(seq, false)
		e.ended(string(schemas.GenerateError))
		return true
	}
	stop, ended := c.add(next.Token, next.Logprob, version)
	switch {
	case ended:
		c.end(stop)
		e.sched.leave(seq, true)
		e.ended(string(stop))
	case len(c.tokens) >= c.chunk:
		c.flush()
	}
	return ended
}

// observe sets the gauges, and ends a drain when nothing is left.
func (e *Engine) observe() {
	var running, idle int
	if e.sched != nil {
		running, idle = len(e.sched.running), len(e.sched.idle)
	}
	e.mu.Lock()
	waiting, closed := len(e.waiting), e.closed
	e.mu.Unlock()
	e.metrics.running.Set(float64(running))
	e.metrics.idle.Set(float64(idle))
	e.metrics.waiting.Set(float64(waiting))
	if closed && running == 0 && waiting == 0 {
		select {
		case <-e.drained:
		default:
			close(e.drained)
		}
	}
}

// Drain refuses new calls from now on and waits until those taken have ended, or ctx or Run has.
func (e *Engine) Drain(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.stir()
	select {
	case <-e.drained:
		return nil
	case <-e.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain the engine: %w", context.Cause(ctx))
	}
}

// stop ends every call that is left, so that its caller asks another engine for the rest.
func (e *Engine) stop(cause error) {
	reason := "the engine is stopping"
	if cause != nil {
		reason = cause.Error()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	left := e.waiting
	e.waiting = nil
	if e.sched != nil {
		for _, seq := range e.sched.running {
			left = append(left, seq.call)
		}
	}
	for _, c := range left {
		c.fail(reason, true)
		e.ended(string(schemas.GenerateError))
	}
	if e.pending != nil {
		e.pending.done <- errors.Join(ErrStopped, cause)
		e.pending = nil
	}
	close(e.stopped)
}
