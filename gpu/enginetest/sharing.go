package enginetest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// testSharing shares prefixes among sequences, changes them in every way and in any order, and holds each to a sequence of its own
// that shares nothing, bit for bit.
func testSharing(t *testing.T, newDecoder NewDecoder, cfg gpu.Config) {
	const slots, longest = 6, 200
	w := drawWeights(cfg, 4)
	d, alone := openDecoder(t, newDecoder, cfg, w, slots, longest), openDecoder(t, newDecoder, cfg, w, 1, longest)
	sharer, ok := d.(gpu.Sharer)
	if !ok {
		t.Skip("the decoder is no gpu.Sharer")
	}
	own := openSlot(t, alone)
	want := func(tokens []int32) []float32 {
		alone.Truncate(own, 0)
		return extendWhole(t, alone, wholeExtension(alone, own, tokens...))[0]
	}
	r := rand.New(rand.NewPCG(31, 7))
	open := map[gpu.Slot][]int32{}
	pick := func() gpu.Slot {
		all := slices.Sorted(func(yield func(gpu.Slot) bool) {
			for s := range open {
				if !yield(s) {
					return
				}
			}
		})
		return all[r.IntN(len(all))]
	}
	open[openSlot(t, d)] = nil
	for range 250 {
		switch r.IntN(8) {
		case 0:
			if len(open) < slots {
				open[openSlot(t, d)] = nil
			}
		case 1:
			if s := pick(); len(open) > 1 {
				d.Close(s)
				delete(open, s)
			}
		case 2:
			s := pick()
			n := r.IntN(longest)
			d.Truncate(s, n)
			open[s] = open[s][:min(n, len(open[s]))]
		case 3, 4, 5:
			to, from := pick(), pick()
			// At the ends of pages, within them, and beyond the end of the sequence.
			n := []int{64, 128, r.IntN(longest), longest}[r.IntN(4)]
			sharer.Share(to, from, n)
			if to != from { // else nothing is done
				open[to] = slices.Clone(open[from][:min(n, len(open[from]))])
			}
		default:
			var in []gpu.Extension
			for s, has := range open {
				more := make([]int32, min(longest-len(has), []int{1, 1, 3, 70}[r.IntN(4)]))
				for i := range more {
					more[i] = int32(r.IntN(cfg.VocabSize))
				}
				if len(more) == 0 || r.IntN(4) == 0 {
					continue
				}
				in = append(in, wholeExtension(d, s, more...))
				open[s] = slices.Concat(has, more)
			}
			if len(in) == 0 {
				continue
			}
			for i, row := range extendWhole(t, d, in...) {
				require.Equal(t, want(open[in[i].Slot]), row)
			}
		}
	}
}

// testDTypes checks that the model sampled from is the model with rounded weights, and that numbers that are bfloat16 already
// lose nothing.
func testDTypes(t *testing.T, newDecoder NewDecoder, cfg gpu.Config) {
	w := drawWeights(cfg, 5)
	tokens := []int32{3, 1, 4, 1, 5, 9, 2, 6}
	sample := func(w *gpu.Weights, keep gpu.DType) []float32 {
		d, err := newDecoder(cfg, w, gpu.DecoderOptions{Slots: 1, MaxTokens: 16, DType: keep})
		require.NoError(t, err)
		return extendWhole(t, d, wholeExtension(d, openSlot(t, d), tokens...))[0]
	}
	logits := func(w *gpu.Weights) []float64 {
		rows := NewReference(cfg, w).Logits(tokens)
		return LogSoftmax(rows[len(rows)-1], 1)
	}
	exact, rounded := sample(w, ""), sample(w, gpu.BFloat16)
	requireNear(t, "log-probabilities", logits(w), exact, 2e-4)
	require.Equal(t, exact, sample(w, gpu.Float32))
	require.NotEqual(t, exact, rounded)
	matrices := roundedMatrices(w)
	requireNear(t, "log-probabilities of rounded weights", logits(matrices), rounded, 2e-4)
	require.Equal(t, rounded, sample(matrices, ""), "nothing is lost")
	_, err := newDecoder(cfg, w, gpu.DecoderOptions{Slots: 1, MaxTokens: 16, DType: "int8"})
	require.ErrorContains(t, err, `"int8"`)
}

// roundedMatrices are weights whose matrices are rounded to bfloat16.
func roundedMatrices(w *gpu.Weights) *gpu.Weights {
	out := &gpu.Weights{Tensors: slices.Clone(w.Tensors)}
	for i := range out.Tensors {
		if x := &out.Tensors[i]; len(x.Shape) > 1 {
			x.Data = slices.Clone(x.Data)
			for j, v := range x.Data {
				x.Data[j] = safetensors.RoundBF16(v)
			}
		}
	}
	return out
}
