package consumers

import (
	"context"
	"errors"
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

// Swapped says how long the parts of a swap took.
type Swapped struct {
	// Prepare is checking the weights and laying them out, while generation went on.
	Prepare time.Duration
	// Wait is until no step was under way or, where they drain, until the running calls had ended.
	Wait time.Duration
	// Pause is how long generation stood still.
	Pause time.Duration
}

// swap is a snapshot on its way into the decoder.
type swap struct {
	version int64
	commit  func()     // the decoder's
	sched   *scheduler // of the first snapshot, else nil
	model   *model     // likewise
	done    chan error // holds one
	took    Swapped
	ready   time.Time // when it was prepared
}

// Swap puts a version to use between two steps, as Config.Swap says. It prepares the weights first, beside those in
// use, and all that can be refused is refused then: the pause is a swap of pointers. It returns when the version is
// in use; on an error, which wraps ErrBadWeights when the snapshot is at fault, the old one stays in use. Swaps come
// one at a time; a second waits.
//
// Invariant: generation goes on while a version is prepared.
func (e *Engine) Swap(ctx context.Context, s Snapshot) (Swapped, error) {
	select {
	case e.swapper <- struct{}{}:
		defer func() { <-e.swapper }()
	case <-ctx.Done():
		return Swapped{}, fmt.Errorf("swap to version %d: %w", s.Version, context.Cause(ctx))
	}
	sw, err := e.prepare(s)
	if err != nil {
		return Swapped{}, fmt.Errorf("swap to version %d: %w", s.Version, err)
	}
	if !e.enqueue(sw) {
		return Swapped{}, fmt.Errorf("swap to version %d: %w", s.Version, ErrStopped)
	}
	select {
	case err = <-sw.done:
	case <-ctx.Done():
		if err = context.Cause(ctx); !e.withdraw(sw) {
			err = <-sw.done
		}
	}
	if err != nil {
		return Swapped{}, fmt.Errorf("swap to version %d: %w", s.Version, err)
	}
	return sw.took, nil
}

// prepare does what needs no pause: it checks the snapshot, makes the decoder for the first, and lays the weights out.
func (e *Engine) prepare(s Snapshot) (*swap, error) {
	started := time.Now()
	if s.Version < 0 || s.Version > math.MaxInt32 {
		return nil, fmt.Errorf("%w: the version is out of range", ErrBadWeights)
	}
	sw := &swap{version: s.Version, done: make(chan error, 1)}
	m := e.model.Load()
	if m == nil {
		if err := s.Config.Validate(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadWeights, err)
		}
		m = newModel(s, e.cfg.MaxTokens)
		var err error
		m.dec, err = e.newDecoder(s.Config, s.Weights, gpu.DecoderOptions{Slots: e.cfg.Slots, MaxTokens: m.maxLen})
		switch {
		case errors.Is(err, gpu.ErrMismatch):
			return nil, fmt.Errorf("%w: %w", ErrBadWeights, err)
		case err != nil:
			return nil, fmt.Errorf("make a decoder: %w", err)
		}
		sw.model, sw.sched, sw.commit = m, newScheduler(e.cfg, m.dec, e.metrics), func() {}
	} else {
		if err := m.accepts(s); err != nil {
			return nil, err
		}
		var err error
		if sw.commit, err = m.dec.Prepare(s.Weights); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadWeights, err)
		}
	}
	sw.ready = time.Now()
	sw.took.Prepare = sw.ready.Sub(started)
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
		e.apply(sw)
		sw.done <- nil
	}
}

func (e *Engine) apply(sw *swap) {
	sched := e.sched
	if sw.sched != nil {
		sched = sw.sched
	}
	// What was sampled by the old version goes out before the new one samples.
	for _, seq := range sched.running {
		seq.call.flush()
	}
	started := time.Now()
	sw.took.Wait = started.Sub(sw.ready)
	sw.commit()
	if e.cfg.Swap != SwapKeep {
		sched.forget()
	}
	e.version.Store(sw.version)
	if sw.model != nil {
		e.sched = sched
		e.model.Store(sw.model)
	}
	sw.took.Pause = time.Since(started)
	e.metrics.swaps.Inc()
	e.metrics.swapSeconds.Observe(sw.took.Pause.Seconds())
	e.metrics.applied.Set(float64(sw.version))
}
