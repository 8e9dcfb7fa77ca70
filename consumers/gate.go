package consumers

import (
	"context"
	"fmt"
	"sync"

	"github.com/weir-rl/weir/schemas"
)

// gate passes calls to a Sampler until it is closed, counts the calls and their tokens, and knows how many are under way.
type gate struct {
	sampler Sampler
	metrics *Metrics

	mu     sync.Mutex
	calls  int
	closed bool
	empty  chan struct{} // closed when the gate is and no call is left
}

func newGate(s Sampler, m *Metrics) *gate {
	return &gate{sampler: s, metrics: m, empty: make(chan struct{})}
}

// Version is the policy version in use; -1 before the first.
func (g *gate) Version() int64 { return g.sampler.Version() }

// Generate passes a call on, or refuses it with Retry when the gate is closed.
func (g *gate) Generate(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	return g.passCall(ctx, req, emit, g.sampler.Generate)
}

// Stream is Generate with each token as it is sampled, where the Sampler can do that.
func (g *gate) Stream(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	generate := g.sampler.Generate
	if s, ok := g.sampler.(Streamer); ok {
		generate = s.Stream
	}
	return g.passCall(ctx, req, emit, generate)
}

func (g *gate) passCall(
	ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error,
	generate func(context.Context, *schemas.GenerateRequest, func(*schemas.GenerateChunk) error) error,
) error {
	counted := func(c *schemas.GenerateChunk) error {
		err := emit(c)
		if err == nil {
			g.metrics.sampled.Add(float64(len(c.Tokens)))
		}
		if err == nil && c.Done {
			g.metrics.calls.WithLabelValues(string(c.Stop)).Inc()
		}
		return err
	}
	if !g.enterCall() {
		return counted(&schemas.GenerateChunk{Done: true, Stop: schemas.GenerateError, Error: stopping, Retry: true})
	}
	defer g.leaveCall()
	err := generate(ctx, req, counted)
	if err != nil {
		g.metrics.calls.WithLabelValues(cancelled).Inc()
	}
	return err
}

func (g *gate) enterCall() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.calls++
	}
	return !g.closed
}

func (g *gate) leaveCall() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.calls--; g.closed && g.calls == 0 {
		close(g.empty)
	}
}

// stopping is why a call is refused when the process ends.
const stopping = "the engine is stopping"

// drainCalls closes the gate and waits until no call is under way, or ctx ends. It may be called once.
func (g *gate) drainCalls(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	if g.calls == 0 {
		close(g.empty)
	}
	g.mu.Unlock()
	select {
	case <-g.empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for running calls: %w", context.Cause(ctx))
	}
}
