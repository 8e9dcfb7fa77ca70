package native

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// shareWork is the least number of multiply-adds worth handing to another worker.
const shareWork = 4 << 20

// decoder is a gpu.Decoder with a copy of the weights of its own.
type decoder struct {
	*model
	pool    *kernel.Pool
	options gpu.DecoderOptions
	// w is the weights in use; spare, nil before the second, is room for the next.
	w      *forwardWeights
	spare  atomic.Pointer[forwardWeights]
	rotary rotary
	slots  []cache
	pager  pager
	// free lists the slots not open, the next one last.
	free    []gpu.Slot
	workers []*decodeWorker
	// scratch is for helpers within a share.
	scratch scratchPool
	logits  []float32
	rows    [][]float32
	// used marks the slots named by the Extend in progress.
	used []bool
}

// decodeWorker is one share's buffers: the stream x and the attention's output att of its rows, with their
// positions, and the last rows of its sequences.
type decodeWorker struct {
	scratch
	pos                               []int32
	x, qkv, att, gateUp, act, lastAtt []float32
	last                              []float32
}

// NewDecoder makes a sampler over a copy of the current weights. It is independent of the engine.
func (e *Engine) NewDecoder(o gpu.DecoderOptions) (gpu.Decoder, error) {
	if o.Slots <= 0 || o.MaxTokens <= 0 {
		return nil, fmt.Errorf("new decoder: slots %d, max tokens %d: must be positive", o.Slots, o.MaxTokens)
	}
	if o.MaxTokens > e.cfg.MaxPositions {
		return nil, fmt.Errorf("new decoder: max tokens %d, the model takes %d: %w", o.MaxTokens, e.cfg.MaxPositions, gpu.ErrTooLong)
	}
	d := &decoder{
		model: e.model, pool: kernel.NewPool(e.pool.Workers()), options: o,
		w:      newForwardWeights(&e.layout),
		rotary: rotary{theta: e.cfg.RopeTheta, half: e.hd / 2},
		slots:  make([]cache, o.Slots), pager: newPager(e.model), used: make([]bool, o.Slots),
	}
	d.w.load(&d.layout, d.pool, d.parts(slices.Clone(e.data)))
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
	if d.isOpen(s) {
		d.slots[s].open = false
		d.pager.truncate(&d.slots[s], 0)
		d.free = append(d.free, s)
	}
}

func (d *decoder) isOpen(s gpu.Slot) bool { return s >= 0 && int(s) < len(d.slots) && d.slots[s].open }

// Len is 0 for a slot not open.
func (d *decoder) Len(s gpu.Slot) int {
	if !d.isOpen(s) {
		return 0
	}
	return d.slots[s].len
}

// Truncate does nothing when the sequence is no longer than n.
func (d *decoder) Truncate(s gpu.Slot, n int) {
	if d.isOpen(s) && n < d.slots[s].len {
		d.pager.truncate(&d.slots[s], max(n, 0))
	}
}

// Prepare lays the matrices of w out in the room of the weights before those in use, and shares its other tensors.
// It takes the workers that no Extend has.
func (d *decoder) Prepare(w *gpu.Weights) (commit func(), err error) {
	tensors, err := d.ordered(w)
	if err != nil {
		return nil, fmt.Errorf("prepare weights: %w", err)
	}
	// Taken out while it is written to, so that a commit that comes late finds its own weights whole.
	next := d.spare.Swap(nil)
	if next == nil {
		next = newForwardWeights(&d.layout)
	}
	next.load(&d.layout, d.pool, tensors)
	return func() {
		d.spare.Store(d.w)
		d.w = next
	}, nil
}

// Extend appends tokens to each named sequence. On an error nothing is appended. Sequences are shared out
// among the workers, each taking its share through the whole model alone.
func (d *decoder) Extend(ctx context.Context, in []gpu.Extension) ([][]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	total, err := d.check(in)
	if err != nil {
		return nil, fmt.Errorf("extend: %w", err)
	}
	longest := 0
	for _, x := range in {
		c := &d.slots[x.Slot]
		n := c.len + len(x.Tokens)
		d.pager.reserve(c, n)
		longest = max(longest, n)
	}
	d.rotary.grow(longest)
	fit(&d.logits, len(in)*d.v)
	shares := min(d.pool.Workers(), len(in), max(1, total*d.size/shareWork))
	for len(d.workers) < shares {
		d.workers = append(d.workers, new(decodeWorker))
	}
	bounds := share(in, total, shares)
	// Shares that leave workers idle let them help with the products and the heads.
	var helpers *kernel.Pool
	if shares < d.pool.Workers() {
		helpers = d.pool
	}
	d.pool.ParallelFor(shares, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			d.extend(helpers, d.workers[i], in[bounds[i]:bounds[i+1]], d.logits[bounds[i]*d.v:bounds[i+1]*d.v])
		}
	})
	d.rows = d.rows[:0]
	for i, x := range in {
		d.slots[x.Slot].len += len(x.Tokens)
		d.rows = append(d.rows, d.logits[i*d.v:(i+1)*d.v])
	}
	return d.rows, nil
}

// check reports the first fault in the extensions and counts their tokens.
func (d *decoder) check(in []gpu.Extension) (total int, err error) {
	clear(d.used)
	for i, x := range in {
		switch {
		case !d.isOpen(x.Slot):
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
		d.used[x.Slot] = true
		total += len(x.Tokens)
	}
	return total, nil
}

// share cuts the extensions into runs of about equal tokens: bounds[i] is where run i begins.
func share(in []gpu.Extension, total, shares int) []int {
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

// extend takes some extensions through the model and writes the logits of their last tokens.
func (d *decoder) extend(pool *kernel.Pool, w *decodeWorker, in []gpu.Extension, logits []float32) {
	if len(in) == 0 {
		return
	}
	w.pos, w.x = w.pos[:0], w.x[:0]
	for _, x := range in {
		for i, t := range x.Tokens {
			w.pos = append(w.pos, int32(d.slots[x.Slot].len+i))
			w.x = append(w.x, d.w.embed[int(t)*d.d:(int(t)+1)*d.d]...)
		}
	}
	rows := len(w.pos)
	for l := range d.layers {
		layer := &d.w.layers[l]
		qkv, att := fit(&w.qkv, rows*d.qkv), fit(&w.att, rows*d.q)
		for lo := 0; lo < rows; lo += rowBlock {
			hi := min(lo+rowBlock, rows)
			d.project(pool, &w.scratch, layer, &d.rotary, qkv[lo*d.qkv:hi*d.qkv], w.x[lo*d.d:hi*d.d], nil, w.pos[lo:hi])
		}
		at := 0
		for _, x := range in {
			n := len(x.Tokens)
			d.attendCache(pool, w, l, &d.slots[x.Slot], att[at*d.q:(at+n)*d.q], qkv[at*d.qkv:(at+n)*d.qkv], n)
			at += n
		}
		x := w.x
		if l == d.layers-1 && rows > len(in) {
			// Of the last block only the last tokens are read.
			x, att = d.lastRows(w, in)
		}
		left := len(x) / d.d
		gateUp, act := fit(&w.gateUp, rowBlock*2*d.ff), fit(&w.act, rowBlock*d.ff)
		for lo := 0; lo < left; lo += rowBlock {
			hi := min(lo+rowBlock, left)
			part := x[lo*d.d : hi*d.d]
			d.feed(pool, &w.scratch, layer, part, part, part, att[lo*d.q:hi*d.q], nil, gateUp, act, hi-lo)
		}
		if l == d.layers-1 {
			h := fit(&w.norm, len(x))
			d.normalize(h, x, d.w.norm, nil)
			pool.MatMulPacked(logits, h, d.w.head, len(in), false)
		}
	}
}

// attendCache appends n rows of keys and values to a slot's cache and attends over it.
func (d *decoder) attendCache(pool *kernel.Pool, w *decodeWorker, layer int, c *cache, att, qkv []float32, n int) {
	d.store(c, layer, qkv)
	if pool == nil || n == 1 {
		for g := range d.kvHeads {
			d.attendHead(&w.scratch, layer, c, att, qkv, n, g)
		}
		return
	}
	pool.ParallelFor(d.kvHeads, 1, func(lo, hi int) {
		s := d.scratch.get()
		defer d.scratch.put(s)
		for g := lo; g < hi; g++ {
			d.attendHead(s, layer, c, att, qkv, n, g)
		}
	})
}

// attendHead is attendCache's attention of one key head. The query heads of one token lie one after another, so
// that they are taken at once.
func (d *decoder) attendHead(s *scratch, layer int, c *cache, att, qkv []float32, n, g int) {
	at := g * d.reps * d.hd
	if n == 1 {
		d.attendPages(s, c, layer, g, att[at:], d.hd, qkv[at:], d.hd, d.reps, c.len+1, 0)
		return
	}
	for r := range d.reps {
		for lo := 0; lo < n; lo += queryBlock {
			d.attendPages(s, c, layer, g, att[lo*d.q+at+r*d.hd:], d.q, qkv[lo*d.qkv+at+r*d.hd:], d.qkv,
				min(queryBlock, n-lo), c.len+lo+1, 1)
		}
	}
}

// lastRows gathers the stream and the attention's output of each extension's last token.
func (d *decoder) lastRows(w *decodeWorker, in []gpu.Extension) (x, att []float32) {
	w.last, w.lastAtt = w.last[:0], w.lastAtt[:0]
	end := 0
	for _, e := range in {
		end += len(e.Tokens)
		w.last = append(w.last, w.x[(end-1)*d.d:end*d.d]...)
		w.lastAtt = append(w.lastAtt, w.att[(end-1)*d.q:end*d.q]...)
	}
	return w.last, w.lastAtt
}
