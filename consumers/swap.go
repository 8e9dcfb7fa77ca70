package consumers

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-rl/weir/gpu"
)

// Snapshot is one policy version, decoded and ready to be used.
type Snapshot struct {
	// Version is the policy version, from 0.
	Version int64
	// Config is the model's; it must be the same in every snapshot that an engine is given.
	Config gpu.Config
	// Weights are kept by the decoder.
	Weights *gpu.Weights
}

// swap is a snapshot on its way into the decoder.
type swap struct {
	snapshot Snapshot
	sched    *scheduler // of the first snapshot, else nil
	model    *model     // likewise
	done     chan error // holds one
	paused   time.Duration
}

// Swap puts a version to use between two steps, as Config.Swap says, and returns how long generation paused. All
// that can be refused is refused before the pause. It returns when the version is in use; on an error, which wraps
// ErrBadWeights when the snapshot is at fault, the old one stays in use. Swaps come one at a time; a second waits.
func (e *Engine) Swap(ctx context.Context, s Snapshot) (time.Duration, error) {
	select {
	case e.swapper <- struct{}{}:
		defer func() { <-e.swapper }()
	case <-ctx.Done():
		return 0, fmt.Errorf("swap to version %d: %w", s.Version, context.Cause(ctx))
	}
	sw, err := e.prepare(s)
	if err != nil {
		return 0, fmt.Errorf("swap to version %d: %w", s.Version, err)
	}
	if !e.enqueue(sw) {
		return 0, fmt.Errorf("swap to version %d: %w", s.Version, ErrStopped)
	}
	select {
	case err = <-sw.done:
	case <-ctx.Done():
		if err = context.Cause(ctx); !e.withdraw(sw) {
			err = <-sw.done
		}
	}
	if err != nil {
		return 0, fmt.Errorf("swap to version %d: %w", s.Version, err)
	}
	return sw.paused, nil
}

// prepare does what needs no pause: it checks the snapshot and, for the first, makes the decoder.
func (e *Engine) prepare(s Snapshot) (*swap, error) {
	if s.Version < 0 || s.Version > math.MaxInt32 {
		return nil, fmt.Errorf("%w: the version is out of range", ErrBadWeights)
	}
	sw := &swap{snapshot: s, done: make(chan error, 1)}
	if m := e.model.Load(); m != nil {
		return sw, m.accepts(s)
	}
	if err := s.Config.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadWeights, err)
	}
	sw.model = newModel(s, e.cfg.MaxTokens)
	dec, err := e.newDecoder(s.Config, gpu.DecoderOptions{Slots: e.cfg.Slots, MaxTokens: sw.model.maxLen})
	if err != nil {
		return nil, fmt.Errorf("make a decoder: %w", err)
	}
	sw.sched = newScheduler(e.cfg, dec, e.metrics)
	return sw, nil
}

func newModel(s Snapshot, maxTokens int) *model {
	m := &model{config: s.Config, maxLen: s.Config.MaxPositions, shapes: map[string][]int{}}
	if maxTokens > 0 {
		m.maxLen = min(m.maxLen, maxTokens)
	}
	for _, t := range s.Weights.Tensors {
		m.shapes[t.Name] = t.Shape
	}
	return m
}

// accepts reports a snapshot that is of another model.
func (m *model) accepts(s Snapshot) error {
	if err := sameConfig(m.config, s.Config); err != nil {
		return err
	}
	if len(s.Weights.Tensors) != len(m.shapes) {
		return fmt.Errorf("%w: %d tensors where the model has %d", ErrBadWeights, len(s.Weights.Tensors), len(m.shapes))
	}
	for _, t := range s.Weights.Tensors {
		want, ok := m.shapes[t.Name]
		if !ok {
			return fmt.Errorf("%w: tensor %q is not one of the model's", ErrBadWeights, t.Name)
		}
		if !slices.Equal(want, t.Shape) {
			return fmt.Errorf("%w: tensor %q has shape %v where the model's has %v", ErrBadWeights, t.Name, t.Shape, want)
		}
	}
	return nil
}

// sameConfig compares what makes two models different; how the starting weights were drawn and stored does not.
func sameConfig(a, b gpu.Config) error {
	a.Architectures, b.Architectures = nil, nil
	a.DType, b.DType = "", ""
	a.InitStd, b.InitStd = 0, 0
	if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", b) {
		return fmt.Errorf("%w: the model configuration is %+v where the one in use is %+v", ErrBadWeights, b, a)
	}
	return nil
}

func (e *Engine) enqueue(sw *swap) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.stopped:
		return false
	default:
	}
	e.pending = sw
	e.stir()
	return true
}

// withdraw takes back a swap that has not begun.
func (e *Engine) withdraw(sw *swap) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pending != sw {
		return false
	}
	e.pending = nil
	e.stir()
	return true
}

// applySwap puts the pending snapshot to use, when its mode allows it now.
func (e *Engine) applySwap() {
	e.mu.Lock()
	sw := e.pending
	ready := sw != nil && (e.cfg.Swap != SwapDrain || e.sched == nil || len(e.sched.running) == 0)
	if ready {
		e.pending = nil
	}
	e.mu.Unlock()
	if ready {
		sw.done <- e.apply(sw)
	}
}

func (e *Engine) apply(sw *swap) error {
	sched := e.sched
	if sw.sched != nil {
		sched = sw.sched
	}
	// What was sampled by the old version goes out before the new one samples.
	for _, seq := range sched.running {
		seq.call.flush()
	}
	started := time.Now()
	if err := sched.dec.SetWeights(sw.snapshot.Weights); err != nil {
		return fmt.Errorf("%w: %w", ErrBadWeights, err)
	}
	if e.cfg.Swap != SwapKeep {
		sched.forget()
	}
	e.version.Store(sw.snapshot.Version)
	if sw.model != nil {
		e.sched = sched
		e.model.Store(sw.model)
	}
	sw.paused = time.Since(started)
	e.metrics.swaps.Inc()
	e.metrics.swapSeconds.Observe(sw.paused.Seconds())
	e.metrics.applied.Set(float64(sw.snapshot.Version))
	return nil
}
