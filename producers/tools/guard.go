package tools

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
)

// GuardConfig keeps a tool from being asked too much, and a failure of the machinery's from costing an episode at once. The zero value,
// with a single attempt, guards nothing.
type GuardConfig struct {
	// MaxConcurrent bounds the calls that are under way at once in this process, >= 0; others wait. 0 is no bound.
	MaxConcurrent int `koanf:"max_concurrent"`
	// Retry is for calls that were unavailable.
	Retry RetryConfig `koanf:"retry"`
	// Breaker leaves a tool alone that is away.
	Breaker BreakerConfig `koanf:"breaker"`
}

// RetryConfig says how often a call is tried. Errors that the agent is told of, such as wrong arguments, are never tried again.
type RetryConfig struct {
	// Attempts at a call, > 0; more than 1 only for tools that keep nothing for an episode. Defaults to 1.
	Attempts int `koanf:"attempts"`
	// Backoff is the longest wait before the second attempt, and doubles with each further. Defaults to 200ms.
	Backoff time.Duration `koanf:"backoff"`
}

// BreakerConfig says when a tool is left alone.
type BreakerConfig struct {
	// Failures is after how many calls in a row that were unavailable the tool is left alone, >= 0. 0 never does.
	Failures int `koanf:"failures"`
	// Pause is for how long: calls wait for its end, where their time allows, and a single call then tries whether the tool is back.
	// Defaults to 10s.
	Pause time.Duration `koanf:"pause"`
}

// DefaultGuardConfig guards nothing.
func DefaultGuardConfig() GuardConfig {
	return GuardConfig{Retry: RetryConfig{Attempts: 1, Backoff: 200 * time.Millisecond}, Breaker: BreakerConfig{Pause: 10 * time.Second}}
}

// Unread says why nothing depends on a key of the section, beginning with the other key that says so; "" if something does.
func (c GuardConfig) Unread(key string) string {
	switch {
	case key == "retry.backoff" && c.Retry.Attempts == 1:
		return "retry.attempts is 1"
	case key == "breaker.pause" && c.Breaker.Failures == 0:
		return "breaker.failures is 0"
	}
	return ""
}

// Validate reports every fault.
func (c GuardConfig) Validate() error {
	return check.All(
		check.Between("max_concurrent", c.MaxConcurrent, 0, 10_000),
		check.Between("retry.attempts", c.Retry.Attempts, 1, 20),
		check.NotNegative("retry.backoff", c.Retry.Backoff),
		check.Between("breaker.failures", c.Breaker.Failures, 0, 10_000),
		check.Positive("breaker.pause", c.Breaker.Pause),
	)
}

// A Guard belongs to a tool, or to a server: the tools that it wraps share its bound and its breaker.
type Guard struct {
	cfg   GuardConfig
	slots chan struct{} // nil is no bound
	ended atomic.Uint64 // the calls that have ended

	mu       sync.Mutex
	failures int           // in a row
	probing  bool          // a single call tries whether the tool is back
	until    time.Time     // it is left alone before that
	changed  chan struct{} // closed when a probe has ended
}

// NewGuard makes a guard.
func NewGuard(cfg GuardConfig) (*Guard, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	g := &Guard{cfg: cfg, changed: make(chan struct{})}
	if cfg.MaxConcurrent > 0 {
		g.slots = make(chan struct{}, cfg.MaxConcurrent)
	}
	return g, nil
}

// Wrap returns the tool as the guard lets it be called.
func (g *Guard) Wrap(tool producers.Tool) (producers.Tool, error) {
	if _, keeps := tool.(producers.SessionTool); keeps && g.cfg.Retry.Attempts > 1 {
		return nil, fmt.Errorf("retry.attempts: %d: tool %s keeps what earlier calls did, and a second attempt could do it twice: want 1",
			g.cfg.Retry.Attempts, tool.Spec().Name)
	}
	return wrapped{tool, func(ctx context.Context, call producers.Call) (producers.Observation, error) {
		for attempt := 1; ; attempt++ {
			o, err := g.callOnce(ctx, tool, call)
			if !errors.Is(err, producers.ErrUnavailable) || attempt >= g.cfg.Retry.Attempts || ctx.Err() != nil {
				return o, err
			}
			longest := g.cfg.Retry.Backoff << min(attempt-1, 10)
			if !waitUntil(ctx, time.Duration((0.5+0.5*rand.Float64())*float64(longest)), nil) {
				return o, err
			}
		}
	}}, nil
}

// waitUntil waits for a time or a channel; it is false where ctx ends first.
func waitUntil(ctx context.Context, d time.Duration, or <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-or:
	case <-ctx.Done():
		return false
	}
	return true
}

// slotPatience is for how long at least a call waits in nobody's time while none of the calls under way ends: calls that ignore the end of
// their time would have it wait for ever. It is twice the time limit of a call where that is more.
const slotPatience = 5 * time.Minute

// takeSlot waits until fewer calls are under way than may be. The wait is no part of the time of the call, or of its episode.
func (g *Guard) takeSlot(ctx context.Context, tool string) (leave func(), err error) {
	if g.slots == nil {
		return func() {}, nil
	}
	leave = func() {
		g.ended.Add(1)
		<-g.slots
	}
	select {
	case g.slots <- struct{}{}:
		return leave, nil
	default:
	}
	awaited := fmt.Sprintf("one of %d calls of tool %s to end (max_concurrent)", g.cfg.MaxConcurrent, tool)
	goOn := sync.OnceFunc(producers.HoldCall(ctx, awaited))
	defer goOn()
	wait := producers.NewPatience(max(slotPatience, 2*producers.CallLimit(ctx)), &g.ended)
	defer wait.Stop()
	for {
		select {
		case g.slots <- struct{}{}:
			return leave, nil
		case <-wait.Look():
			if wait.IsOver() {
				goOn()
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %s: waited for one of max_concurrent, %d, calls to end: %w",
				producers.ErrUnavailable, tool, g.cfg.MaxConcurrent, context.Cause(ctx))
		}
	}
}

// callOnce makes a single attempt, when there is room and the tool is not left alone.
func (g *Guard) callOnce(ctx context.Context, tool producers.Tool, call producers.Call) (producers.Observation, error) {
	leave, err := g.takeSlot(ctx, tool.Spec().Name)
	if err != nil {
		return producers.Observation{}, err
	}
	defer leave()
	if err := g.awaitTurn(ctx, tool.Spec().Name); err != nil {
		return producers.Observation{}, err
	}
	settled := false
	defer func() {
		if !settled { // it panicked
			g.recordEnd(true)
		}
	}()
	o, err := tool.Call(ctx, call)
	settled = true
	g.recordEnd(errors.Is(err, producers.ErrUnavailable))
	return o, err
}

// awaitTurn waits until the tool may be called. A call whose time is over before that fails at once.
func (g *Guard) awaitTurn(ctx context.Context, name string) error {
	for {
		g.mu.Lock()
		open := g.cfg.Breaker.Failures > 0 && g.failures >= g.cfg.Breaker.Failures
		left := time.Until(g.until)
		if !open || left <= 0 && !g.probing {
			g.probing = open
			g.mu.Unlock()
			return nil
		}
		failures, changed := g.failures, g.changed
		g.mu.Unlock()
		if left <= 0 {
			left = g.cfg.Breaker.Pause // the probe tells, or the time does
		}
		deadline, bounded := ctx.Deadline()
		if bounded && time.Until(deadline) < left || !waitUntil(ctx, left, changed) {
			return fmt.Errorf("%w: %s: %d calls in a row were unavailable, and it is left alone for breaker.pause, %s",
				producers.ErrUnavailable, name, failures, g.cfg.Breaker.Pause)
		}
	}
}

// recordEnd records how a call ended.
func (g *Guard) recordEnd(failed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.probing {
		g.probing = false
		close(g.changed)
		g.changed = make(chan struct{})
	}
	if !failed {
		g.failures = 0
		return
	}
	g.failures++
	g.until = time.Now().Add(g.cfg.Breaker.Pause)
}
