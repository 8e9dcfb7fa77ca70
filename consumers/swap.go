package consumers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
)

// swap is a snapshot that the Batcher has not put to use yet.
type swap struct {
	version int64
	commit  func()     // the decoder's
	sched   *scheduler // of the first snapshot; nil for the others
	model   *model     // of the first snapshot; nil for the others
	done    chan error // of capacity 1
	took    Swapped
	ready   time.Time // when it was prepared
}

// Swap puts a version to use between two steps, by Config.Swap. It prepares the weights first, beside those in
// use, and every refusal comes then: the pause is a swap of pointers. It returns when the version is in use. On an
// error, which wraps ErrBadWeights when the snapshot is at fault, the old version stays in use. A single Swap works at a
// time; a second waits.
//
// Invariant: generation goes on while a version is prepared.
func (b *Batcher) Swap(ctx context.Context, s Snapshot) (Swapped, error) {
	select {
	case b.swapper <- struct{}{}:
		defer func() { <-b.swapper }()
	case <-ctx.Done():
		return Swapped{}, fmt.Errorf("swap to version %d: %w", s.Version, context.Cause(ctx))
	}
	sw, err := b.prepareSwap(ctx, s)
	if err != nil {
		if b.hasStopped() { // its decoder may have ended meanwhile
			err = ErrStopped
		}
		return Swapped{}, fmt.Errorf("swap to version %d: %w", s.Version, err)
	}
	if !b.enqueueSwap(sw) {
		return Swapped{}, fmt.Errorf("swap to version %d: %w", s.Version, ErrStopped)
	}
	select {
	case err = <-sw.done:
	case <-ctx.Done():
		if err = context.Cause(ctx); !b.withdrawSwap(sw) {
			err = <-sw.done
		}
	}
	if err != nil {
		return Swapped{}, fmt.Errorf("swap to version %d: %w", s.Version, err)
	}
	return sw.took, nil
}

// prepareSwap does all that needs no pause: it checks the snapshot, makes the decoder for the first, and lays the weights out.
func (b *Batcher) prepareSwap(ctx context.Context, s Snapshot) (*swap, error) {
	started := time.Now()
	if s.Version < 0 || s.Version > math.MaxInt32 {
		return nil, fmt.Errorf("%w: the version is out of range", ErrBadWeights)
	}
	if sw, err := b.prepareFromFolder(ctx, s); sw != nil || err != nil {
		return sw, err
	}
	options := gpu.DecoderOptions{Slots: b.cfg.Slots}
	if s.Weights == nil {
		options.Dir = s.Dir
	}
	done, err := s.openWeights()
	if err != nil {
		return nil, err
	}
	defer done()
	// A value head is the trainer's; a model folder may have one.
	s.Config, s.Weights = gpu.WithValueHead(s.Config, s.Weights, false)
	sw := &swap{version: s.Version, done: make(chan error, 1)}
	m := b.model.Load()
	if m == nil {
		if err := s.Config.Validate(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadWeights, err)
		}
		m = newModel(s, b.cfg.MaxTokens)
		options.MaxTokens = m.maxLen
		m.dec, err = b.newDecoder(s.Config, s.Weights, options)
		switch {
		case errors.Is(err, gpu.ErrMismatch):
			return nil, fmt.Errorf("%w: %w", ErrBadWeights, err)
		case err != nil:
			return nil, fmt.Errorf("make a decoder: %w", err)
		}
		b.keepDecoder(m.dec)
		if starter, ok := m.dec.(gpu.Starter); ok {
			if err := starter.Start(ctx); err != nil {
				return nil, fmt.Errorf("start the decoder: %w", err)
			}
		}
		sw.model, sw.sched, sw.commit = m, newScheduler(b.cfg, m.dec, b.metrics), func() {}
	} else {
		if err := m.checkSnapshot(s); err != nil {
			return nil, err
		}
		sw.commit, err = m.dec.Prepare(s.Weights)
		switch {
		case err != nil && s.Weights.Source != nil && !errors.Is(err, gpu.ErrMismatch):
			return nil, fmt.Errorf("lay out %s: %w", s.Dir, err) // of the disk: the same version may do the next time
		case err != nil:
			return nil, wrapUnlessLost(err)
		}
	}
	sw.ready = time.Now()
	sw.took.Prepare = sw.ready.Sub(started)
	return sw, nil
}

// prepareFromFolder is prepare for a folder that the decoder reads itself; nil where there is no such folder or decoder.
func (b *Batcher) prepareFromFolder(ctx context.Context, s Snapshot) (*swap, error) {
	m := b.model.Load()
	if m == nil || s.Weights != nil || s.Dir == "" {
		return nil, nil
	}
	dec, ok := m.dec.(gpu.FolderDecoder)
	if !ok {
		return nil, nil
	}
	started := time.Now()
	s.Config.ValueHead = false
	if !SameModel(m.config, s.Config) {
		return nil, fmt.Errorf("%w: the model configuration is %+v where the one in use is %+v", ErrBadWeights, s.Config, m.config)
	}
	sw := &swap{version: s.Version, done: make(chan error, 1)}
	var err error
	if sw.commit, err = dec.PrepareFolder(ctx, s.Dir); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, wrapUnlessLost(err)
	}
	sw.ready = time.Now()
	sw.took.Prepare = sw.ready.Sub(started)
	return sw, nil
}

// wrapUnlessLost blames the weights for an error of a decoder, unless it is the decoder that ended.
func wrapUnlessLost(err error) error {
	if errors.Is(err, gpu.ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrBadWeights, err)
}

// openWeights opens Dir where Weights is nil: they are then read from its files until done is called.
func (s *Snapshot) openWeights() (done func(), err error) {
	switch {
	case s.Weights != nil:
		return func() {}, nil
	case s.Dir == "":
		return nil, fmt.Errorf("%w: the snapshot has neither weights nor a folder", ErrBadWeights)
	}
	folder, err := hf.Open(s.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadWeights, err)
	}
	done = func() { _ = folder.Close() } // read only
	if !SameModel(s.Config, folder.Config) {
		done()
		return nil, fmt.Errorf("%w: %s holds a model of configuration %+v, the snapshot's is %+v", ErrBadWeights, s.Dir, folder.Config, s.Config)
	}
	s.Weights = folder.Weights()
	return done, nil
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

// checkSnapshot reports a snapshot that is of another model.
func (m *model) checkSnapshot(s Snapshot) error {
	if !SameModel(m.config, s.Config) {
		return fmt.Errorf("%w: the model configuration is %+v where the one in use is %+v", ErrBadWeights, s.Config, m.config)
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

// SameModel reports whether two configurations compute the same; how the starting weights were drawn and stored may differ.
func SameModel(a, b gpu.Config) bool {
	for _, c := range []*gpu.Config{&a, &b} {
		c.HeadDim = c.AttentionDim()
		c.Architectures, c.DType, c.InitStd = nil, "", 0
	}
	same := a.Transformers.SameModule(b.Transformers)
	a.Transformers, b.Transformers = nil, nil
	return same && reflect.DeepEqual(a, b)
}

func (b *Batcher) enqueueSwap(sw *swap) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.stopped:
		return false
	default:
	}
	b.pending = sw
	b.wakeLoop()
	return true
}

// hasStopped reports whether Run has returned.
func (b *Batcher) hasStopped() bool {
	select {
	case <-b.stopped:
		return true
	default:
		return false
	}
}

// withdrawSwap takes back a swap that has not begun.
func (b *Batcher) withdrawSwap(sw *swap) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending != sw {
		return false
	}
	b.pending = nil
	b.wakeLoop()
	return true
}

// applySwap puts the pending snapshot to use, when its mode allows it now.
func (b *Batcher) applySwap() {
	b.mu.Lock()
	sw := b.pending
	ready := sw != nil && (b.cfg.Swap != SwapDrain || b.sched == nil || len(b.sched.running) == 0)
	if ready {
		b.pending = nil
	}
	b.mu.Unlock()
	if ready {
		b.applyPending(sw)
		sw.done <- nil
	}
}

func (b *Batcher) applyPending(sw *swap) {
	sched := b.sched
	if sw.sched != nil {
		sched = sw.sched
	}
	// Tokens that the old version sampled go out before the new version samples.
	for _, seq := range sched.running {
		seq.call.flushTokens()
	}
	started := time.Now()
	sw.took.Wait = started.Sub(sw.ready)
	sw.commit()
	sched.epoch++
	if b.cfg.Swap != SwapKeep {
		sched.forgetCaches()
	}
	b.version.Store(sw.version)
	if sw.model != nil {
		b.sched = sched
		b.model.Store(sw.model)
	}
	sw.took.Pause = time.Since(started)
}
