package native

import (
	"context"
	"fmt"

	"github.com/weir-rl/weir/gpu"
)

// activations are the forward pass's intermediate results. The last block, after its attention, is computed only at the m rows
// that the head reads; its arrays then have m rows and the other blocks' n.
type activations struct {
	layers []layerActivations
	// full and once are the storage of layers: with keep, and without. Where blocks are computed again, full has their inputs
	// alone, and shared has what the gradient of the current block needs.
	full         []layerActivations
	once, shared layerActivations
	// lastAtt is the last block's attention at the head's rows, [m, q]. last is that block's output, [m, d],
	// inv its inverse norms, hidden its normalized rows.
	lastAtt, last, inv, hidden []float32
	// logZ is the log of each row's sum of exponentials at its temperature; entropy its entropy; both [m].
	logZ, entropy []float32
}

// layerActivations belong to a block. All layers share a single set when nothing is kept. When blocks are computed again they
// share all but the inputs.
type layerActivations struct {
	// x is the block's input [n, d], qkv and kept as projectQKV leaves them, att [n, q], sums [n, heads, 2].
	x, qkv, att, sums []float32
	kept              projected
	// mid is the stream after attention, midInv its inverse norms, gateUp and act as feedForward leaves them.
	mid, midInv, gateUp, act []float32
}

// forward computes the outputs of a packed batch, valid until the next forward. With keep, backward's inputs are kept until
// then.
func (e *Engine) forward(ctx context.Context, b *gpu.Batch, keep bool) (*gpu.Outputs, error) {
	e.kept = false
	if err := e.plan.readBatch(e.model, b); err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	e.ensureWeights()
	e.refreshWeights()
	p := &e.plan
	n, m := len(p.tokens), len(p.rows)
	e.clearOutputs(n)
	if m == 0 {
		e.kept = keep
		return e.requestedOutputs(), nil
	}
	e.reserveActivations(n, m, keep)

	first := &e.acts.layers[0]
	e.forEachBlock(n, e.forwardRows(n), func(s *scratch, lo, hi int) {
		for i := lo; i < hi; i++ {
			t := int(p.tokens[i])
			if row := first.x[i*e.d : (i+1)*e.d]; e.forwardDType == gpu.BFloat16 {
				e.fast.copyEmbedding(row, p.tokens[i])
			} else {
				copy(row, e.w.embed[t*e.d:(t+1)*e.d])
			}
		}
		e.projectRows(s, 0, lo, hi)
	})
	for l := range e.layers {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		a := &e.acts.layers[l]
		e.attendAll(a.att, a.qkv, a.sums)
		if l == e.layers-1 {
			e.finishLastBlock(a, keep)
			break
		}
		e.forEachBlock(n, e.forwardRows(n), func(s *scratch, lo, hi int) {
			e.feedLayer(s, l, e.acts.layers[l+1].x, a.x, a.att, keep, lo, hi)
			e.projectRows(s, l+1, lo, hi)
		})
	}
	e.headForward()
	e.kept = keep
	return e.requestedOutputs(), nil
}

// projectRows is projectQKV on rows [lo, hi) of layer l.
func (e *Engine) projectRows(s *scratch, l, lo, hi int) {
	a := &e.acts.layers[l]
	e.projectQKV(nil, s, &e.fast.layers[l], &e.rotary, a.qkv[lo*e.qkv:hi*e.qkv], a.x[lo*e.d:hi*e.d],
		a.kept.sliceRows(e.model, lo, hi), e.plan.pos[lo:hi])
}

// feedLayer is feedForward on rows [lo, hi) of layer l; where out is nil the block's output is left out.
func (e *Engine) feedLayer(s *scratch, l int, out, x, att []float32, keep bool, lo, hi int) {
	a := &e.acts.layers[l]
	r := feedRows{n: hi - lo, x: x[lo*e.d : hi*e.d], att: att[lo*e.q : hi*e.q]}
	if keep {
		r.mid, r.midInv = a.mid[lo*e.d:hi*e.d], a.midInv[lo:hi]
		r.gateUp, r.act = a.gateUp[lo*2*e.ff:hi*2*e.ff], a.act[lo*e.ff:hi*e.ff]
	} else {
		r.mid = r.x
		r.gateUp, r.act = resizeBuffer(&s.gate, r.n*2*e.ff), resizeBuffer(&s.hidden, r.n*e.ff)
	}
	if out != nil {
		r.out = out[lo*e.d : hi*e.d]
	}
	e.feedForward(nil, s, &e.fast.layers[l], &r)
}

// recomputeLayer computes the inputs of layer l's gradient from the block's input, by the steps of forward. The last block is
// not computed again: forward left its results.
func (e *Engine) recomputeLayer(l int) {
	if !e.recompute || l == e.layers-1 {
		return
	}
	a, n := &e.acts.layers[l], len(e.plan.tokens)
	e.forEachBlock(n, e.forwardRows(n), func(s *scratch, lo, hi int) { e.projectRows(s, l, lo, hi) })
	e.attendAll(a.att, a.qkv, a.sums)
	e.forEachBlock(n, e.forwardRows(n), func(s *scratch, lo, hi int) { e.feedLayer(s, l, nil, a.x, a.att, true, lo, hi) })
}

// finishLastBlock computes the last block after its attention, at the head's rows.
func (e *Engine) finishLastBlock(a *layerActivations, keep bool) {
	rows, att := e.plan.rows, e.acts.lastAtt
	e.forEachBlock(len(rows), e.forwardRows(len(rows)), func(s *scratch, lo, hi int) {
		for r := lo; r < hi; r++ {
			i := int(rows[r])
			copy(e.acts.last[r*e.d:(r+1)*e.d], a.x[i*e.d:(i+1)*e.d])
			copy(att[r*e.q:(r+1)*e.q], a.att[i*e.q:(i+1)*e.q])
		}
		e.feedLayer(s, e.layers-1, e.acts.last, e.acts.last, att, keep, lo, hi)
	})
}

// refreshWeights brings the forward pass's copy of the weights up to date.
func (e *Engine) refreshWeights() {
	if e.fast == nil {
		e.fast = new(forwardWeights)
	}
	if e.stale {
		e.packWeights()
		e.stale = false
		if e.lora != nil {
			for l := range e.fast.layers {
				e.fast.layers[l].lora = &e.lora.layers[l]
			}
		}
	}
	e.rotary.growTables(e.plan.longestSequence())
}

// reserveActivations sizes the activations for n tokens, m of them read by the head.
func (e *Engine) reserveActivations(n, m int, keep bool) {
	a := &e.acts
	if len(a.layers) == 0 {
		a.layers, a.full = make([]layerActivations, e.layers), make([]layerActivations, e.layers)
	}
	stream := func(l *layerActivations) {
		resizeBuffer(&l.qkv, n*e.qkv)
		resizeBuffer(&l.att, n*e.q)
	}
	if !keep {
		resizeBuffer(&a.once.x, n*e.d)
		stream(&a.once)
	}
	for i := range a.layers {
		if !keep {
			a.layers[i] = a.once
			continue
		}
		l, rows := &a.full[i], n
		resizeBuffer(&l.x, n*e.d)
		x := l.x
		switch {
		case e.recompute:
			l = &a.shared
		case i == e.layers-1:
			rows = m
		}
		stream(l)
		resizeBuffer(&l.kept.inv, n)
		if e.cfg.QKNorm {
			resizeBuffer(&l.kept.raw, n*(e.q+e.kv))
			resizeBuffer(&l.kept.heads, n*(e.heads+e.kvHeads))
		}
		resizeBuffer(&l.sums, 2*n*e.heads)
		resizeBuffer(&l.mid, rows*e.d)
		resizeBuffer(&l.midInv, rows)
		resizeBuffer(&l.gateUp, rows*2*e.ff)
		resizeBuffer(&l.act, rows*e.ff)
		a.layers[i] = *l
		a.layers[i].x = x
	}
	resizeBuffer(&a.lastAtt, m*e.q)
	resizeBuffer(&a.last, m*e.d)
	resizeBuffer(&a.inv, m)
	resizeBuffer(&a.hidden, m*e.d)
	resizeBuffer(&a.logZ, m)
	resizeBuffer(&a.entropy, m)
}

// clearOutputs sizes the outputs for n tokens, all 0.
func (e *Engine) clearOutputs(n int) {
	if !e.plan.valuesOnly {
		zeroBuffer(&e.out.Logprobs, n)
		zeroBuffer(&e.out.Entropies, n)
		zeroBuffer(&e.out.ProbSquares, n)
	}
	if e.w.value != nil {
		zeroBuffer(&e.out.Values, n)
	}
}

// requestedOutputs are the outputs that the batch asks for.
func (e *Engine) requestedOutputs() *gpu.Outputs {
	if e.plan.valuesOnly {
		return &gpu.Outputs{Values: e.out.Values}
	}
	return &e.out
}
