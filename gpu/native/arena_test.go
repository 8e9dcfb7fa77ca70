package native

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

func TestCallsOfOneShapeReuseTheirBuffers(t *testing.T) {
	e, err := New(gpu.Config{
		ModelType: "llama", VocabSize: 30, HiddenSize: 16, IntermediateSize: 24, NumLayers: 2, NumHeads: 2, NumKVHeads: 1,
		RopeTheta: 1e4, RMSNormEps: 1e-5, TieEmbeddings: true, MaxPositions: 400, ValueHead: true,
	}, Options{Threads: 1})
	require.NoError(t, err)
	weights, err := e.Weights(t.Context())
	require.NoError(t, err)
	d, err := NewDecoder(e.Config(), weights, gpu.DecoderOptions{Slots: 1, MaxTokens: 400}, 1)
	require.NoError(t, err)
	slot, err := d.Open()
	require.NoError(t, err)
	b := &gpu.Batch{Tokens: make([]int32, 300), Offsets: []int{0, 100, 300}, Mask: make([]uint8, 300)}
	up := make([]float32, 300)
	for i := range b.Mask {
		b.Mask[i], up[i] = 1, 1
	}
	run := func() {
		for _, keep := range []bool{false, true} {
			_, err := e.Forward(t.Context(), b, keep)
			require.NoError(t, err)
		}
		require.NoError(t, e.Backward(t.Context(), &gpu.Gradients{Logprobs: up, Entropies: up, Values: up}))
		_, err := e.Step(t.Context(), gpu.StepOptions{LearningRate: 1e-3, Beta2: 0.9, Epsilon: 1e-8})
		require.NoError(t, err)
		d.Truncate(slot, 0)
		for _, n := range []int{50, 1} {
			_, err = d.Extend(t.Context(), []gpu.Extension{{Slot: slot, Tokens: b.Tokens[:n], Sample: true, Temperature: 1}})
			require.NoError(t, err)
		}
	}
	buffers := func() (at []*float32) {
		add := func(lists ...[]float32) {
			for _, xs := range lists {
				at = append(at, unsafe.SliceData(xs))
			}
		}
		a, g := &e.acts, &e.gradScratch
		for _, l := range append(a.full, a.once) {
			add(l.x, l.kept.inv, l.kept.raw, l.kept.heads, l.qkv, l.att, l.sums, l.mid, l.midInv, l.gateUp, l.act)
		}
		add(a.lastAtt, a.last, a.inv, a.hidden, a.logZ, a.entropy, e.out.Logprobs, e.out.Entropies, e.out.ProbSquares, e.out.Values)
		add(g.out, g.outRows, g.att, g.attRows, g.gateUp, g.qkv, g.norm, g.partial, g.hidden, g.logits, e.grad, e.moments.first, e.moments.second)
		for _, s := range e.scratch.free {
			add(s.row, s.norm, s.hidden, s.gate, s.scores, s.grads, s.logits)
		}
		w := d.(*decoder)
		add(w.slots[0].pages[0].data)
		for _, k := range w.workers {
			add(k.x, k.qkv, k.att, k.gateUp, k.act, k.last, k.lastAtt, k.logits, k.norm, k.sampler.probs)
		}
		return at
	}
	run()
	want := buffers()
	run()
	require.Equal(t, want, buffers())
}

// Of four layers, three inputs and one whole layer less than without.
func TestLayersComputedAgainKeepTheirInputsAlone(t *testing.T) {
	held := func(recompute bool) (floats int) {
		cfg := gpu.Config{
			ModelType: "llama", VocabSize: 30, HiddenSize: 16, IntermediateSize: 24, NumLayers: 4, NumHeads: 2, NumKVHeads: 1,
			RopeTheta: 1e4, RMSNormEps: 1e-5, TieEmbeddings: true, MaxPositions: 400,
		}
		e, err := New(cfg, Options{Threads: 1, Recompute: recompute})
		require.NoError(t, err)
		b := &gpu.Batch{Tokens: make([]int32, 300), Offsets: []int{0, 300}, Mask: make([]uint8, 300)}
		for i := range b.Mask {
			b.Mask[i] = 1
		}
		_, err = e.Forward(t.Context(), b, true)
		require.NoError(t, err)
		for _, l := range append(e.acts.full, e.acts.shared, e.acts.once) {
			for _, xs := range [][]float32{l.x, l.kept.inv, l.kept.raw, l.kept.heads, l.qkv, l.att, l.sums, l.mid, l.midInv, l.gateUp, l.act} {
				floats += cap(xs)
			}
		}
		return floats
	}
	const d, q, qkv, heads, ff = 16, 16, 32, 2, 24
	const input, rest = d, qkv + q + 2*heads + 1 + d + 1 + 3*ff
	const room = 1.125 // of fit
	require.InDelta(t, 300*4*(input+rest)*room, held(false), 300)
	require.InDelta(t, 300*(4*input+rest)*room, held(true), 300)
}
