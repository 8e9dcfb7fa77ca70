package native

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

const (
	// shareWork is the least number of multiply-adds worth handing to another worker.
	shareWork = 4 << 20
	// A model of more than cachedModel parameters fits in no worker's cache. A worker then takes at least shareTokens tokens
	// through it, and the workers that are left over share the products.
	cachedModel, shareTokens = 8 << 20, 4
)

// decoder is a gpu.Decoder. The matrices are copied into the layout for repeated products; tied embeddings are read from the
// head's copy. Gains, the value head and float32 embeddings apart from the head are read where they are.
//
// Invariant: a decoder copies the matrices that it was given once, and shares the other tensors.
type decoder struct {
	*model
	pool    *kernel.Pool
	options gpu.DecoderOptions
	// dot is Options.Dot.
	dot bool
	// w is the version in use. spare is room for the matrices of the next version, nil before the first Prepare.
	w      *forwardWeights
	spare  atomic.Pointer[forwardWeights]
	rotary rotary
	slots  []cache
	pager  pager
	// free lists the slots that are not open. The next to open is last.
	free    []gpu.Slot
	workers []*decodeWorker
	// scratch is for helpers within a share.
	scratch scratchPool
	results []gpu.Sampled
	// used marks the slots named by the Extend in progress.
	used []bool
}

// NewDecoder makes a decoder that samples from w, weights of a model of the given shape, with some threads; 0 is GOMAXPROCS. It
// copies the matrices. It keeps the other tensors of w, among them float32 embeddings that are not the head: these must not be
// written to.
func NewDecoder(cfg gpu.Config, w *gpu.Weights, o gpu.DecoderOptions, threads int) (gpu.Decoder, error) {
	return newDecoder(cfg, w, o, threads, false)
}

func newDecoder(cfg gpu.Config, w *gpu.Weights, o gpu.DecoderOptions, threads int, dot bool) (gpu.Decoder, error) {
	if err := errors.Join(cfg.RequireOwn("native"), cfg.Validate()); err != nil {
		return nil, err
	}
	if o.Slots <= 0 || o.MaxTokens <= 0 {
		return nil, fmt.Errorf("new decoder: slots %d, max tokens %d: must be positive", o.Slots, o.MaxTokens)
	}
	if o.DType != "" && o.DType.Bytes() == 0 {
		return nil, fmt.Errorf("new decoder: weights in %q: want %s, %s, or \"\" for the one that keeps them as they are", o.DType, gpu.Float32, gpu.BFloat16)
	}
	if o.MaxTokens > cfg.MaxPositions {
		return nil, fmt.Errorf("new decoder: max tokens %d, the model takes %d: %w", o.MaxTokens, cfg.MaxPositions, gpu.ErrTooLong)
	}
	m := newModel(cfg)
	tensors, err := m.orderTensors(w)
	if err != nil {
		return nil, fmt.Errorf("new decoder: %w", err)
	}
	d := &decoder{
		model: m, pool: kernel.NewPool(threads), options: o, dot: dot,
		w:      new(forwardWeights),
		rotary: rotary{speeds: cfg.RopeSpeeds(), half: m.hd / 2},
		slots:  make([]cache, o.Slots), pager: newPager(m), used: make([]bool, o.Slots),
	}
	if err := d.w.loadTensors(&d.layout, d.pool, tensors, o.DType, dot); err != nil {
		return nil, fmt.Errorf("new decoder: %w", err)
	}
	for s := o.Slots - 1; s >= 0; s-- {
		d.free = append(d.free, gpu.Slot(s))
	}
	return d, nil
}

func (d *decoder) Config() gpu.Config { return d.cfg }

func (d *decoder) Open() (gpu.Slot, error) {
	n := len(d.free)
	if n == 0 {
		return 0, gpu.ErrNoSlot
	}
	s := d.free[n-1]
	d.free = d.free[:n-1]
	d.slots[s].open = true
	return s, nil
}

// Close frees a slot; a slot not open is left alone.
func (d *decoder) Close(s gpu.Slot) {
	if d.isOpenSlot(s) {
		d.slots[s].open = false
		d.pager.truncateCache(&d.slots[s], 0)
		d.free = append(d.free, s)
	}
}

func (d *decoder) isOpenSlot(s gpu.Slot) bool {
	return s >= 0 && int(s) < len(d.slots) && d.slots[s].open
}

// Truncate does nothing when the sequence is no longer than n.
func (d *decoder) Truncate(s gpu.Slot, n int) {
	if d.isOpenSlot(s) && n < d.slots[s].len {
		d.pager.truncateCache(&d.slots[s], max(n, 0))
	}
}

// Share does nothing when a slot is not open or both are the same slot.
func (d *decoder) Share(to, from gpu.Slot, n int) {
	if d.isOpenSlot(to) && d.isOpenSlot(from) && to != from {
		d.pager.sharePages(&d.slots[to], &d.slots[from], min(max(n, 0), d.slots[from].len))
	}
}

// Prepare lays the matrices of w out in the room of the version before the current version, and keeps the other tensors of w.
// It uses the workers that no Extend has.
func (d *decoder) Prepare(w *gpu.Weights) (commit func(), err error) {
	tensors, err := d.orderTensors(w)
	if err != nil {
		return nil, fmt.Errorf("prepare weights: %w", err)
	}
	// The spare is taken out while it is written to, so that a late commit finds its own weights whole.
	next := d.spare.Swap(nil)
	if next == nil {
		next = new(forwardWeights)
	}
	if err := next.loadTensors(&d.layout, d.pool, tensors, d.options.DType, d.dot); err != nil {
		d.spare.Store(next) // room for another try
		return nil, fmt.Errorf("prepare weights: %w", err)
	}
	return func() {
		d.spare.Store(d.w)
		d.w = next
	}, nil
}

// Extend shares the sequences out among the workers; each takes its share through the whole model and samples alone.
func (d *decoder) Extend(ctx context.Context, in []gpu.Extension) ([]gpu.Sampled, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	total, err := d.checkExtensions(in)
	if err != nil {
		return nil, fmt.Errorf("extend: %w", err)
	}
	longest := 0
	for _, x := range in {
		c := &d.slots[x.Slot]
		n := c.len + len(x.Tokens)
		d.pager.reservePages(c, n)
		longest = max(longest, n)
	}
	d.rotary.growTables(longest)
	if cap(d.results) < len(in) {
		d.results = make([]gpu.Sampled, len(in))
	}
	d.results = d.results[:len(in)]
	shares := min(d.pool.Workers(), len(in), max(1, total*d.size/shareWork))
	if d.size > cachedModel {
		shares = max(1, min(shares, total/shareTokens))
	}
	for len(d.workers) < shares {
		d.workers = append(d.workers, new(decodeWorker))
	}
	bounds := splitIntoShares(in, total, shares)
	// If shares leave workers idle, these help with the products and the heads.
	var helpers *kernel.Pool
	if shares < d.pool.Workers() {
		helpers = d.pool
	}
	d.pool.ParallelFor(shares, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			d.extendShare(helpers, d.workers[i], in[bounds[i]:bounds[i+1]], d.results[bounds[i]:bounds[i+1]])
		}
	})
	for _, x := range in {
		d.slots[x.Slot].len += len(x.Tokens)
	}
	return d.results, nil
}

// checkExtensions reports the first fault in the extensions and counts their tokens.
func (d *decoder) checkExtensions(in []gpu.Extension) (total int, err error) {
	clear(d.used)
	for i, x := range in {
		switch {
		case !d.isOpenSlot(x.Slot):
			return 0, fmt.Errorf("extension %d: slot %d is not open", i, x.Slot)
		case d.used[x.Slot]:
			return 0, fmt.Errorf("extension %d: slot %d is named twice", i, x.Slot)
		case len(x.Tokens) == 0:
			return 0, fmt.Errorf("extension %d: slot %d: no tokens", i, x.Slot)
		case d.slots[x.Slot].len+len(x.Tokens) > d.options.MaxTokens:
			return 0, fmt.Errorf("extension %d: slot %d has %d tokens, %d more exceed %d: %w",
				i, x.Slot, d.slots[x.Slot].len, len(x.Tokens), d.options.MaxTokens, gpu.ErrTooLong)
		}
		if err := d.checkTokens(x.Tokens); err != nil {
			return 0, fmt.Errorf("extension %d: slot %d: %w", i, x.Slot, err)
		}
		if err := d.checkSample(&x); err != nil {
			return 0, fmt.Errorf("extension %d: slot %d: %w", i, x.Slot, err)
		}
		d.used[x.Slot] = true
		total += len(x.Tokens)
	}
	return total, nil
}

// checkSample reports the first fault in an extension's sampling parameters.
func (d *decoder) checkSample(x *gpu.Extension) error {
	switch t := x.Temperature; {
	case !x.Sample:
		return nil
	case !(t == 0 || t >= gpu.MinTemperature && t <= gpu.MaxTemperature):
		return fmt.Errorf("temperature is %g: must be 0, or between %g and %g", t, gpu.MinTemperature, gpu.MaxTemperature)
	case !(x.U >= 0 && x.U < 1):
		return fmt.Errorf("u is %g: must be in [0, 1)", x.U)
	case x.TopLogprobs < 0 || x.TopLogprobs > d.v:
		return fmt.Errorf("top logprobs is %d: must be between 0 and the vocabulary, %d", x.TopLogprobs, d.v)
	}
	return nil
}

// splitIntoShares cuts the extensions into runs of about equal tokens: bounds[i] is where run i begins.
func splitIntoShares(in []gpu.Extension, total, shares int) []int {
	bounds := make([]int, 1, shares+1)
	taken := 0
	for i, x := range in {
		if len(bounds) < shares && i > bounds[len(bounds)-1] && taken*shares >= total*len(bounds) {
			bounds = append(bounds, i)
		}
		taken += len(x.Tokens)
	}
	for len(bounds) <= shares {
		bounds = append(bounds, len(in))
	}
	return bounds
}
