package consumers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
)

// Batcher is a [Sampler] that batches calls continuously over a decoder. Make it with NewBatcher, run it with Run, give it
// weights with Swap; until the first weights it refuses calls with Retry.
type Batcher struct {
	cfg        Config
	newDecoder NewDecoder
	metrics    *Metrics

	model   atomic.Pointer[model]
	version atomic.Int64
	work    chan struct{} // of capacity 1: there is something to do
	stopped chan struct{} // closed when Run has returned
	swapper chan struct{} // of capacity 1: a Swap is under way
	// versionWait is how long a call waits for newer weights before it is refused with Retry.
	versionWait time.Duration

	mu      sync.Mutex
	waiting []*call
	free    int // calls that could have been running, and were not, when calls were last admitted
	pending *swap
	forget  []string    // episodes that will not call again
	closed  bool        // no more calls are taken
	decoder gpu.Decoder // the newest decoder, in use or not yet
	load    Load

	sched *scheduler // Run's
}

var (
	_ Sampler   = (*Batcher)(nil)
	_ Forgetter = (*Batcher)(nil)
	_ Streamer  = (*Batcher)(nil)
)

// NewDecoder makes the decoder of a model over its first weights; [gpu.Backend] has such a function.
type NewDecoder func(gpu.Config, *gpu.Weights, gpu.DecoderOptions) (gpu.Decoder, error)

// model is the part of a Batcher that never changes after the first weights.
type model struct {
	config gpu.Config
	maxLen int
	// shapes are the tensors' of the first weights.
	shapes map[string][]int
	// dec is Run's, but for Prepare, which is Swap's.
	dec gpu.Decoder
}

// NewBatcher makes a Batcher that holds no model yet. cfg must be valid. A nil m counts nothing that anybody sees.
func NewBatcher(cfg Config, newDecoder NewDecoder, m *Metrics) *Batcher {
	b := &Batcher{
		cfg: cfg, newDecoder: newDecoder, metrics: orUnseen(m),
		work: make(chan struct{}, 1), stopped: make(chan struct{}), swapper: make(chan struct{}, 1),
		versionWait: maxVersionWait, free: cfg.mostRunning(),
	}
	b.version.Store(-1)
	return b
}

// maxVersionWait is time enough to fetch the weights that a call waits for, if they can be fetched at all.
const maxVersionWait = time.Minute

// Version is the policy version in use; -1 before the first.
func (b *Batcher) Version() int64 { return b.version.Load() }

// Load is how busy the Batcher was at its last step, but for the calls that wait now.
func (b *Batcher) Load() Load {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.load
	l.Waiting = len(b.waiting)
	return l
}

// Generate serves a call, Config.ChunkTokens tokens at a time.
func (b *Batcher) Generate(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	return b.serveCall(ctx, req, b.cfg.ChunkTokens, emit)
}

// Stream is Generate for a reader that follows along: emit gets each token when it is sampled, together with those
// sampled while emit was busy.
func (b *Batcher) Stream(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	return b.serveCall(ctx, req, 1, emit)
}

func (b *Batcher) serveCall(ctx context.Context, req *schemas.GenerateRequest, chunk int, emit func(*schemas.GenerateChunk) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, refusal := b.submitCallInChunks(ctx, req, chunk)
	if refusal != nil {
		return emitChunk(req, refusal, emit)
	}
	var late <-chan time.Time
	if b.Version() < req.MinVersion {
		timer := time.NewTimer(b.versionWait)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("generate for episode %q: %w", req.Episode, context.Cause(ctx))
		case <-late:
			if refusal := b.abandonCall(c); refusal != nil {
				return emitChunk(req, refusal, emit)
			}
		case <-c.notify:
			chunk := c.takeChunk()
			if err := emitChunk(req, chunk, emit); err != nil || chunk.Done {
				return err
			}
		}
	}
}

func emitChunk(req *schemas.GenerateRequest, chunk *schemas.GenerateChunk, emit func(*schemas.GenerateChunk) error) error {
	if err := emit(chunk); err != nil {
		return fmt.Errorf("send a chunk of episode %q: %w", req.Episode, err)
	}
	return nil
}

// abandonCall takes a call that still waits for newer weights out of the queue and returns the chunk that refuses it. It
// returns nil where the weights have come or the call has ended.
func (b *Batcher) abandonCall(c *call) *schemas.GenerateChunk {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.Version()
	at := slices.Index(b.waiting, c)
	if v >= c.req.MinVersion || at < 0 {
		return nil
	}
	b.waiting = slices.Delete(b.waiting, at, at+1)
	return b.refusalChunk(fmt.Sprintf("has version %d and waited %s for version %d", v, b.versionWait, c.req.MinVersion), true)
}

// submitCall queues the call, or returns the chunk that refuses it.
func (b *Batcher) submitCall(ctx context.Context, req *schemas.GenerateRequest) (*call, *schemas.GenerateChunk) {
	return b.submitCallInChunks(ctx, req, b.cfg.ChunkTokens)
}

// submitCallInChunks is submit for a call whose tokens are delivered in chunks of the given size.
func (b *Batcher) submitCallInChunks(ctx context.Context, req *schemas.GenerateRequest, chunk int) (*call, *schemas.GenerateChunk) {
	m := b.model.Load()
	if m == nil {
		return nil, b.busyChunk("no weights yet")
	}
	c, room, err := newCall(ctx, req, m.config.VocabSize, m.maxLen)
	if err != nil {
		return nil, b.refusalChunk(err.Error(), false)
	}
	if !room {
		return nil, &schemas.GenerateChunk{Done: true, Stop: schemas.GenerateLength}
	}
	c.chunk = chunk
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, b.refusalChunk(stopping, true)
	}
	// Calls that can start at the next step do not count as waiting.
	if room := b.cfg.Queue + b.free; len(b.waiting) >= room {
		b.waiting = slices.DeleteFunc(b.waiting, func(c *call) bool { return c.ctx.Err() != nil })
		if len(b.waiting) >= room {
			return nil, b.busyChunk(fmt.Sprintf("%d calls are waiting already", b.cfg.Queue))
		}
	}
	b.waiting = append(b.waiting, c)
	b.wakeLoop()
	return c, nil
}

// refusalChunk is the chunk that ends a call unserved.
func (b *Batcher) refusalChunk(reason string, retry bool) *schemas.GenerateChunk {
	return &schemas.GenerateChunk{Done: true, Stop: schemas.GenerateError, Error: reason, Retry: retry}
}

// busyChunk is the chunk that ends a call for which there is no room yet.
func (b *Batcher) busyChunk(reason string) *schemas.GenerateChunk {
	chunk := b.refusalChunk(reason, true)
	chunk.Busy = true
	return chunk
}

// wakeLoop has Run look for work.
func (b *Batcher) wakeLoop() {
	select {
	case b.work <- struct{}{}:
	default:
	}
}

// Run steps the decoder until ctx ends, then ends the calls that are left with Retry. It returns an error when the
// decoder fails. Run may be called once.
func (b *Batcher) Run(ctx context.Context) error {
	err := b.runLoop(ctx)
	b.stopCalls(err)
	return err
}

func (b *Batcher) runLoop(ctx context.Context) error {
	for ctx.Err() == nil {
		busy, err := b.runStep(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case !busy:
			select {
			case <-ctx.Done():
			case <-b.work:
			}
		}
	}
	return nil
}

// Forget frees the cache of an episode that will not call again, once its call, if there is a call, has ended.
func (b *Batcher) Forget(episode string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// A cache that is not freed here is evicted in time.
	if len(b.forget) < maxForget {
		b.forget = append(b.forget, episode)
		b.wakeLoop()
	}
}

// maxForget bounds the episodes to forget between two steps.
const maxForget = 4096

// stopCalls ends every call that is left, so that its caller asks another consumer for the rest.
func (b *Batcher) stopCalls(cause error) {
	reason := stopping
	if cause != nil {
		reason = cause.Error()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	closeDecoder(b.decoder)
	left := b.waiting
	b.waiting = nil
	if b.sched != nil {
		for _, seq := range b.sched.running {
			left = append(left, seq.call)
		}
	}
	for _, c := range left {
		c.failCall(reason, true)
	}
	if b.pending != nil {
		b.pending.done <- errors.Join(ErrStopped, cause)
		b.pending = nil
	}
	close(b.stopped)
}

// keepDecoder keeps a new decoder until the Batcher stops, in place of a decoder that never came into use.
func (b *Batcher) keepDecoder(d gpu.Decoder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	closeDecoder(b.decoder)
	b.decoder = d
	if b.closed {
		closeDecoder(d)
	}
}

// closeDecoder frees a decoder's memory outside of Go.
func closeDecoder(d gpu.Decoder) {
	if e, ok := d.(gpu.Ender); ok {
		e.End()
	}
}
