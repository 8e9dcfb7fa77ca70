package native

import (
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// logitFloats bounds the logits that a worker holds at once, in float32: 16 MiB.
const logitFloats = 4 << 20

// decodeWorker holds a share's buffers: the stream x and the attention's output att of its rows, with their positions; and for
// the sequences that sample, their indices in the share, their last rows and their logits.
type decodeWorker struct {
	scratch
	pos                               []int32
	x, qkv, att, gateUp, act, lastAtt []float32
	last                              []float32
	sampling                          []int
	heads                             []cacheHead
}

// extendShare takes some extensions through the model and writes their results.
func (d *decoder) extendShare(pool *kernel.Pool, w *decodeWorker, in []gpu.Extension, out []gpu.Sampled) {
	if len(in) == 0 {
		return
	}
	d.gatherInputs(w, in)
	rows := len(w.pos)
	for l := range d.layers {
		last := l == d.layers-1
		layer := &d.w.layers[l]
		qkv, att := resizeBuffer(&w.qkv, rows*d.qkv), resizeBuffer(&w.att, rows*d.q)
		for lo := 0; lo < rows; lo += rowBlock {
			hi := min(lo+rowBlock, rows)
			d.projectQKV(pool, &w.scratch, layer, &d.rotary, qkv[lo*d.qkv:hi*d.qkv], w.x[lo*d.d:hi*d.d], projected{}, w.pos[lo:hi])
		}
		at := 0
		for _, x := range in {
			d.storeKeysValues(&d.slots[x.Slot], l, qkv[at*d.qkv:(at+len(x.Tokens))*d.qkv])
			at += len(x.Tokens)
		}
		d.attendSlots(pool, w, l, in, att, qkv)
		x := w.x
		if last && rows > len(w.sampling) {
			// Of the last block only the tokens that a sample follows are read.
			x, att = d.lastRows(w, in)
		}
		left := len(x) / d.d
		gateUp, act := resizeBuffer(&w.gateUp, rowBlock*2*d.ff), resizeBuffer(&w.act, rowBlock*d.ff)
		for lo := 0; lo < left; lo += rowBlock {
			hi := min(lo+rowBlock, left)
			part := x[lo*d.d : hi*d.d]
			d.feedForward(pool, &w.scratch, layer, &feedRows{
				n: hi - lo, x: part, att: att[lo*d.q : hi*d.q], mid: part, gateUp: gateUp, act: act, out: part,
			})
		}
		if last {
			d.sampleRows(pool, w, x, in, out)
		}
	}
}

// gatherInputs lists the sequences that sample, and reads the embeddings and the positions of all tokens.
func (d *decoder) gatherInputs(w *decodeWorker, in []gpu.Extension) {
	w.pos, w.x, w.sampling = w.pos[:0], w.x[:0], w.sampling[:0]
	for i, x := range in {
		if x.Sample {
			w.sampling = append(w.sampling, i)
		}
		for j, t := range x.Tokens {
			w.pos = append(w.pos, int32(d.slots[x.Slot].len+j))
			at := len(w.x)
			w.x = slices.Grow(w.x, d.d)[:at+d.d]
			d.w.copyEmbedding(w.x[at:], t)
		}
	}
}

// sampleRows draws a token after each row of the last block's output x [sequences that sample, d].
func (d *decoder) sampleRows(pool *kernel.Pool, w *decodeWorker, x []float32, in []gpu.Extension, out []gpu.Sampled) {
	for i := range out {
		out[i] = gpu.Sampled{Token: -1}
	}
	h := resizeBuffer(&w.norm, len(x))
	d.normalizeRows(h, x, d.w.norm, nil)
	most := max(1, logitFloats/d.v)
	for lo := 0; lo < len(w.sampling); lo += most {
		rows := w.sampling[lo:min(lo+most, len(w.sampling))]
		logits := resizeBuffer(&w.logits, len(rows)*d.v)
		pool.MatMulPacked(logits, h[lo*d.d:(lo+len(rows))*d.d], d.w.head, len(rows), false)
		draw := func(s *sampler, lo, hi int) {
			for r := lo; r < hi; r++ {
				out[rows[r]] = s.sampleToken(logits[r*d.v:(r+1)*d.v], &in[rows[r]])
			}
		}
		if pool == nil || len(rows) == 1 {
			draw(&w.sampler, 0, len(rows))
			continue
		}
		pool.ParallelFor(len(rows), 1, func(lo, hi int) {
			s := d.scratch.get()
			defer d.scratch.put(s)
			draw(&s.sampler, lo, hi)
		})
	}
}

// attendShared is the least number of multiply-adds of attention worth sharing.
const attendShared = 1 << 20

// attendSlots attends from the new rows of a share's extensions, whose keys and values are stored, over their slots' caches. In
// the last block it leaves out extensions that do not sample.
func (d *decoder) attendSlots(pool *kernel.Pool, w *decodeWorker, layer int, in []gpu.Extension, att, qkv []float32) {
	heads, work, at := w.heads[:0], 0, 0
	for _, x := range in {
		n, c := len(x.Tokens), &d.slots[x.Slot]
		if layer < d.layers-1 || x.Sample {
			for g := range d.kvHeads {
				heads = append(heads, cacheHead{cache: c, at: at, rows: n, head: g})
			}
			work += n * (c.len + n) * d.q
		}
		at += n
	}
	w.heads = heads
	one := func(s *scratch, h *cacheHead) {
		d.attendHead(s, layer, h.cache, att[h.at*d.q:], qkv[h.at*d.qkv:], h.rows, h.head)
	}
	if pool == nil || work < attendShared {
		for i := range heads {
			one(&w.scratch, &heads[i])
		}
		return
	}
	pool.ParallelFor(len(heads), 1, func(lo, hi int) {
		s := d.scratch.get()
		defer d.scratch.put(s)
		for i := lo; i < hi; i++ {
			one(s, &heads[i])
		}
	})
}

// cacheHead is a key head of an extension's attention: rows rows from at on, over a slot's cache.
type cacheHead struct {
	cache          *cache
	at, rows, head int
}

// attendHead is attendSlots for a single key head, from n rows. The query heads of a token lie one after another, so all are
// taken at once.
func (d *decoder) attendHead(s *scratch, layer int, c *cache, att, qkv []float32, n, g int) {
	at := g * d.reps * d.hd
	if n == 1 {
		d.attendPages(s, c, layer, g, pagedQueries{
			q: kernel.Matrix{Data: qkv[at:], Stride: d.hd}, out: kernel.Matrix{Data: att[at:], Stride: d.hd}, rows: d.reps, seen: c.len + 1,
		})
		return
	}
	for r := range d.reps {
		for lo := 0; lo < n; lo += queryBlock {
			d.attendPages(s, c, layer, g, pagedQueries{
				q:    kernel.Matrix{Data: qkv[lo*d.qkv+at+r*d.hd:], Stride: d.qkv},
				out:  kernel.Matrix{Data: att[lo*d.q+at+r*d.hd:], Stride: d.q},
				rows: min(queryBlock, n-lo), seen: c.len + lo + 1, step: 1,
			})
		}
	}
}

// lastRows gathers the stream and the attention's output of the last token of each extension that samples.
func (d *decoder) lastRows(w *decodeWorker, in []gpu.Extension) (x, att []float32) {
	w.last, w.lastAtt = w.last[:0], w.lastAtt[:0]
	end := 0
	for _, e := range in {
		end += len(e.Tokens)
		if !e.Sample {
			continue
		}
		w.last = append(w.last, w.x[(end-1)*d.d:end*d.d]...)
		w.lastAtt = append(w.lastAtt, w.att[(end-1)*d.q:end*d.q]...)
	}
	return w.last, w.lastAtt
}
