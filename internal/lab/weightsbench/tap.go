package weightsbench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/weights"
)

// tap is a consumer's stream and its loader of weights, which notes when messages pass.
type tap struct {
	*streams.Run
	name    string
	weights *weights.Loader
	applied chan parts // an item for each version in use
	tokens  atomic.Int64

	mu      sync.Mutex
	noticed time.Time
	load    time.Duration
}

// FollowWeights notes when a manifest comes.
func (t *tap) FollowWeights(ctx context.Context, f func(*schemas.Manifest) error) error {
	return t.Run.FollowWeights(ctx, func(m *schemas.Manifest) error {
		t.mu.Lock()
		t.noticed = time.Now()
		t.mu.Unlock()
		return f(m)
	})
}

func (t *tap) noticedAt() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.noticed
}

// Load notes how long it takes.
func (t *tap) Load(ctx context.Context, m *schemas.Manifest) ([][]byte, error) {
	began := time.Now()
	files, err := t.weights.Load(ctx, m)
	t.mu.Lock()
	t.load = time.Since(began)
	t.mu.Unlock()
	return files, err
}

// Emit takes the measurements from the consumer's own event.
func (t *tap) Emit(ctx context.Context, e *schemas.Event) error {
	if e.Type == schemas.EventVersionApplied {
		seconds := func(key string) time.Duration { return time.Duration(e.Metrics[key] * float64(time.Second)) }
		t.mu.Lock()
		load := t.load
		t.mu.Unlock()
		select {
		case t.applied <- parts{
			load: load, decode: seconds("weights_fetch_seconds") - load, prepare: seconds("weights_prepare_seconds"),
			wait: seconds("swap_wait_seconds"), pause: seconds("swap_seconds"),
		}:
		case <-ctx.Done():
		}
	}
	return t.Run.Emit(ctx, e)
}

// ServeGenerate counts the tokens that leave.
func (t *tap) ServeGenerate(ctx context.Context, engine string, h generate.Handler, opts ...generate.Option) error {
	counting := func(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
		return h(ctx, req, func(c *schemas.GenerateChunk) error {
			t.tokens.Add(int64(len(c.Tokens)))
			return emit(c)
		})
	}
	return generate.Serve(ctx, t.Run, engine, counting, opts...)
}
