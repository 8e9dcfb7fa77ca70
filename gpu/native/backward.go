package native

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// gradients are the backward pass's buffers, shared by all layers.
type gradients struct {
	// out [n, d] is the gradient of a block's output, then of its middle, then of its input. att [n, q] is the gradient of its
	// attention's output. outRows and attRows are the same for the last block, at the head's rows.
	out, outRows, att, attRows []float32
	// gateUp [n, 2ff], qkv [n, qkv] and norm [n, d], the normalized rows, are inputs of the weights' gradients.
	gateUp, qkv, norm []float32
	// partial are partial sums of the vectors' gradients, a row for each block.
	partial []float32
	// hidden [m, d] is the gradient of the head's input. logits holds a chunk of logits.
	hidden, logits []float32
	// loraIn and loraOut are an adapter's inputs and their gradient, [n, rank].
	loraIn, loraOut []float32
}

var errNothingKept = errors.New("backward: no forward pass was kept since the weights last changed")

// backward adds the gradient of the loss with respect to the parameters, for the last forward with keep.
func (e *Engine) backward(ctx context.Context, g *gpu.Gradients) error {
	if !e.kept {
		return errNothingKept
	}
	if err := e.checkGradients(g); err != nil {
		return fmt.Errorf("backward: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	e.allocateGradient()
	n, m := len(e.plan.tokens), len(e.plan.rows)
	if m == 0 {
		return nil
	}
	b := &e.gradScratch
	dout := resizeBuffer(&b.outRows, m*e.d)
	e.headBackward(dout, g)
	if g.Logprobs == nil && g.Entropies == nil && (g.Values == nil || g.Detached) {
		return nil // no gradient goes further down
	}
	for l := e.layers - 1; l >= 0; l-- {
		e.recomputeLayer(l)
		a, rows, att := &e.acts.layers[l], n, e.acts.layers[l].att
		if l == e.layers-1 {
			rows, att = m, e.acts.lastAtt
		}
		datt := resizeBuffer(&b.attRows, rows*e.q)
		e.feedGrad(l, a, datt, dout, att, rows)
		if l == e.layers-1 {
			datt, dout = e.scatterHeadRows(datt, dout)
		}
		dqkv := resizeBuffer(&b.qkv, n*e.qkv)
		e.attendAllGrad(dqkv, datt, a.att, a.qkv, a.sums)
		e.projectGrad(l, a, dout, dqkv, n)
	}
	e.embedGrad(dout)
	return nil
}

// feedGrad is the gradient of feedForward on all of a layer's rows. dout, the gradient of its output, becomes the gradient of
// mid; datt is set to the gradient of the attention's output.
func (e *Engine) feedGrad(l int, a *layerActivations, datt, dout, att []float32, rows int) {
	w, g, d, ff := &e.w.layers[l], &e.g.layers[l], e.d, e.ff
	dgu, norm := resizeBuffer(&e.gradScratch.gateUp, rows*2*ff), resizeBuffer(&e.gradScratch.norm, rows*d)
	lw, lg := e.lora.layerAdapters(l)
	if g.down != nil {
		e.pool.MatMulTN(g.down, dout, a.act, d, rows, ff, true)
	}
	e.addLoRAGrad(lw.down, lg.down, a.act, kernel.Matrix{Data: dout, Stride: d}, rows)
	e.sumBlocks(rows, func(s *scratch, dgain []float32, lo, hi int) {
		k := hi - lo
		dact, dh := resizeBuffer(&s.hidden, k*ff), resizeBuffer(&s.norm, k*d)
		kernel.MatMul(dact, dout[lo*d:hi*d], w.down, k, d, ff, false)
		lw.addInputGrad(s, lw.down, dact, kernel.Matrix{Data: dout[lo*d : hi*d], Stride: d}, k)
		for i := lo; i < hi; i++ {
			gu, dg := a.gateUp[i*2*ff:(i+1)*2*ff], dgu[i*2*ff:(i+1)*2*ff]
			kernel.SwiGLUGrad(dg[:ff], dg[ff:], gu[:ff], gu[ff:], dact[(i-lo)*ff:(i-lo+1)*ff])
		}
		kernel.MatMul(dh, dgu[lo*2*ff:hi*2*ff], w.gateUp, k, 2*ff, d, false)
		lw.addInputGrad(s, lw.gate, dh, kernel.Matrix{Data: dgu[lo*2*ff : hi*2*ff], Stride: 2 * ff}, k)
		lw.addInputGrad(s, lw.up, dh, kernel.Matrix{Data: dgu[lo*2*ff+ff : hi*2*ff], Stride: 2 * ff}, k)
		mid, inv := a.mid[lo*d:hi*d], a.midInv[lo:hi]
		e.normalizeRowsGrad(s, dout[lo*d:hi*d], dgain, dh, mid, w.mlpNorm, inv)
		e.renormalizeRows(norm[lo*d:hi*d], mid, w.mlpNorm, inv)
		kernel.MatMul(datt[lo*e.q:hi*e.q], dout[lo*d:hi*d], w.o, k, d, e.q, false)
		lw.addInputGrad(s, lw.o, datt[lo*e.q:hi*e.q], kernel.Matrix{Data: dout[lo*d : hi*d], Stride: d}, k)
	}, g.mlpNorm)
	if g.gateUp != nil {
		e.pool.MatMulTN(g.gateUp, dgu, norm, 2*ff, rows, d, true)
		e.pool.MatMulTN(g.o, dout, att, d, rows, e.q, true)
	}
	e.addLoRAGrad(lw.gate, lg.gate, norm, kernel.Matrix{Data: dgu, Stride: 2 * ff}, rows)
	e.addLoRAGrad(lw.up, lg.up, norm, kernel.Matrix{Data: dgu[ff:], Stride: 2 * ff}, rows)
	e.addLoRAGrad(lw.o, lg.o, att, kernel.Matrix{Data: dout, Stride: d}, rows)
}

// projectGrad is the gradient of projectQKV on all n rows. It adds to dout, the gradient of the block's input.
func (e *Engine) projectGrad(l int, a *layerActivations, dout, dqkv []float32, n int) {
	w, g, d := &e.w.layers[l], &e.g.layers[l], e.d
	norm := resizeBuffer(&e.gradScratch.norm, n*d)
	lw, lg := e.lora.layerAdapters(l)
	e.sumBlocks(n, func(s *scratch, sums []float32, lo, hi int) {
		dgain, sums := sums[:d], sums[d:]
		for i := lo; i < hi; i++ {
			row := dqkv[i*e.qkv : (i+1)*e.qkv]
			if e.cfg.QKNorm {
				e.normalizeHeadsGrad(s, row, sums[len(sums)-2*e.hd:], w, a.kept.sliceRows(e.model, i, i+1))
			}
			if e.cfg.QKVBias {
				kernel.Add(sums[:e.qkv], sums[:e.qkv], row)
			}
		}
		dh := resizeBuffer(&s.norm, (hi-lo)*d)
		kernel.MatMul(dh, dqkv[lo*e.qkv:hi*e.qkv], w.qkv, hi-lo, e.qkv, d, false)
		lw.addInputGrad(s, lw.q, dh, kernel.Matrix{Data: dqkv[lo*e.qkv : hi*e.qkv], Stride: e.qkv}, hi-lo)
		lw.addInputGrad(s, lw.k, dh, kernel.Matrix{Data: dqkv[lo*e.qkv+e.q : hi*e.qkv], Stride: e.qkv}, hi-lo)
		lw.addInputGrad(s, lw.v, dh, kernel.Matrix{Data: dqkv[lo*e.qkv+e.q+e.kv : hi*e.qkv], Stride: e.qkv}, hi-lo)
		x, inv := a.x[lo*d:hi*d], a.kept.inv[lo:hi]
		e.normalizeRowsGrad(s, dout[lo*d:hi*d], dgain, dh, x, w.attnNorm, inv)
		e.renormalizeRows(norm[lo*d:hi*d], x, w.attnNorm, inv)
	}, g.attnNorm, g.bias, g.qNorm, g.kNorm)
	if g.qkv != nil {
		e.pool.MatMulTN(g.qkv, dqkv, norm, e.qkv, n, d, true)
	}
	e.addLoRAGrad(lw.q, lg.q, norm, kernel.Matrix{Data: dqkv, Stride: e.qkv}, n)
	e.addLoRAGrad(lw.k, lg.k, norm, kernel.Matrix{Data: dqkv[e.q:], Stride: e.qkv}, n)
	e.addLoRAGrad(lw.v, lg.v, norm, kernel.Matrix{Data: dqkv[e.q+e.kv:], Stride: e.qkv}, n)
}

// normalizeHeadsGrad is the gradient of normalizeHeads. row, the gradient of its output, becomes the gradient of its input; the
// gains' gradient is added to dgains, [2, hd].
func (e *Engine) normalizeHeadsGrad(s *scratch, row, dgains []float32, w *layerView, kept projected) {
	up := resizeBuffer(&s.gate, e.q+e.kv)
	copy(up, row)
	clear(row[:e.q+e.kv])
	e.normalizeRowsGrad(s, row[:e.q], dgains[:e.hd], up[:e.q], kept.raw[:e.q], w.qNorm, kept.heads[:e.heads])
	e.normalizeRowsGrad(s, row[e.q:e.q+e.kv], dgains[e.hd:], up[e.q:], kept.raw[e.q:], w.kNorm, kept.heads[e.heads:])
}

// scatterHeadRows copies the last block's gradients from the head's rows to all n rows. The other rows are 0.
func (e *Engine) scatterHeadRows(datt, dout []float32) (attAll, outAll []float32) {
	n := len(e.plan.tokens)
	attAll, outAll = zeroBuffer(&e.gradScratch.att, n*e.q), zeroBuffer(&e.gradScratch.out, n*e.d)
	for r, i := range e.plan.rows {
		copy(attAll[int(i)*e.q:(int(i)+1)*e.q], datt[r*e.q:(r+1)*e.q])
		copy(outAll[int(i)*e.d:(int(i)+1)*e.d], dout[r*e.d:(r+1)*e.d])
	}
	return attAll, outAll
}

// embedGrad adds each token's gradient to its embedding's, in the tokens' order; threads share the columns.
func (e *Engine) embedGrad(dx []float32) {
	if e.g.embed == nil {
		return
	}
	const columns = 32
	e.forEachBlock(e.d, columns, func(_ *scratch, lo, hi int) {
		for i, t := range e.plan.tokens {
			row := e.g.embed[int(t)*e.d+lo : int(t)*e.d+hi]
			for j, v := range dx[i*e.d+lo : i*e.d+hi] {
				row[j] += v
			}
		}
	})
}

// sumBlocks calls f for each row block with zeroed partial sums, as wide as all vectors of to together, and then adds the sums
// to these vectors in the blocks' order.
func (e *Engine) sumBlocks(n int, f func(s *scratch, sums []float32, lo, hi int), to ...[]float32) {
	width := 0
	for _, x := range to {
		width += len(x)
	}
	count := (n + rowBlock - 1) / rowBlock
	partial := zeroBuffer(&e.gradScratch.partial, count*width)
	e.forEachBlock(n, rowBlock, func(s *scratch, lo, hi int) {
		b := lo / rowBlock
		f(s, partial[b*width:(b+1)*width], lo, hi)
	})
	for b := range count {
		sums := partial[b*width:]
		for _, x := range to {
			kernel.Axpy(x, 1, sums[:len(x)])
			sums = sums[len(x):]
		}
	}
}

// allocateGradient allocates the gradient, zeros.
func (e *Engine) allocateGradient() {
	if e.grad != nil {
		return
	}
	e.grad = make([]float32, e.trained.size)
	if e.lora == nil {
		e.g = e.viewArray(e.grad)
		return
	}
	var value []float32
	e.lora.grads, value = e.lora.viewLayers(e.grad)
	e.g = e.frozenGradient(value)
}

func (e *Engine) checkGradients(g *gpu.Gradients) error {
	n := len(e.plan.tokens)
	for _, f := range []struct {
		name string
		xs   []float32
	}{{"logprobs", g.Logprobs}, {"entropies", g.Entropies}, {"values", g.Values}} {
		if f.xs != nil && len(f.xs) != n {
			return fmt.Errorf("gradient of the %s has %d entries for %d tokens", f.name, len(f.xs), n)
		}
	}
	if g.Values != nil && e.w.value == nil {
		return errors.New("gradient of values given, but the model has no value head")
	}
	if e.plan.valuesOnly && (g.Logprobs != nil || g.Entropies != nil) {
		return errors.New("gradient of log-probabilities or entropies given, but values alone were asked for")
	}
	return nil
}
