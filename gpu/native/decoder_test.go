package native_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

func TestDecoderIsIndependentOfTheEngine(t *testing.T) {
	e := newEngine(t, smallConfig(), native.Options{Seed: 1})
	w, err := e.Weights(t.Context())
	require.NoError(t, err)
	d, err := native.NewDecoder(e.Config(), w, gpu.DecoderOptions{Slots: 1, MaxTokens: 512}, 0)
	require.NoError(t, err)
	s, err := d.Open()
	require.NoError(t, err)
	sample := func() gpu.Sampled {
		d.Truncate(s, 0)
		out, err := d.Extend(t.Context(), []gpu.Extension{{
			Slot: s, Tokens: []int32{1, 2, 3}, Sample: true, Temperature: 1, U: 0.5, TopLogprobs: e.Config().VocabSize,
		}})
		require.NoError(t, err)
		return out[0]
	}
	before := sample()
	b := randomBatch(300, 30)
	_, err = e.Forward(t.Context(), b, true)
	require.NoError(t, err)
	require.NoError(t, e.Backward(t.Context(), upstream(30)))
	_, err = e.Step(t.Context(), stepOptions)
	require.NoError(t, err)
	require.Equal(t, before, sample())
	// Both at once: the race detector sees what they share.
	var g errgroup.Group
	g.Go(func() error {
		_, err := e.Forward(t.Context(), b, false)
		return err
	})
	require.Equal(t, before, sample())
	require.NoError(t, g.Wait())
	w, err = e.Weights(t.Context())
	require.NoError(t, err)
	commit, err := d.Prepare(w)
	require.NoError(t, err)
	commit()
	require.NotEqual(t, before, sample())
}

// The engine and the decoder compute the same log-probabilities: what is sampled is what is trained on.
func TestDecoderAgreesWithTheEngine(t *testing.T) {
	e := newEngine(t, smallConfig(), native.Options{Seed: 1})
	w, err := e.Weights(t.Context())
	require.NoError(t, err)
	d, err := native.NewDecoder(e.Config(), w, gpu.DecoderOptions{Slots: 1, MaxTokens: 64}, 0)
	require.NoError(t, err)
	s, err := d.Open()
	require.NoError(t, err)
	b := randomBatch(e.Config().VocabSize, 40)
	b.Offsets, b.Temperature = []int{0, 40}, nil
	for i := range b.Mask {
		b.Mask[i] = 1
	}
	want, err := e.Forward(t.Context(), b, false)
	require.NoError(t, err)
	for i, token := range b.Tokens[:39] {
		out, err := d.Extend(t.Context(), []gpu.Extension{{
			Slot: s, Tokens: []int32{token}, Sample: true, Temperature: 1, TopLogprobs: e.Config().VocabSize,
		}})
		require.NoError(t, err)
		for _, x := range out[0].Top {
			if x.Token == b.Tokens[i+1] {
				require.InDelta(t, float64(want.Logprobs[i+1]), float64(x.Logprob), 1e-4)
			}
		}
	}
}

// Invariant: a decoder copies the matrices that it was given once, and shares the other tensors.
func TestInvariantADecoderSharesItsWeights(t *testing.T) {
	cfg := smallConfig()
	cfg.VocabSize, cfg.HiddenSize, cfg.IntermediateSize = 4096, 256, 512
	e := newEngine(t, cfg, native.Options{Seed: 1})
	w, err := e.Weights(t.Context())
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	d, err := native.NewDecoder(cfg, w, gpu.DecoderOptions{Slots: 1, MaxTokens: 8}, 1)
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	var matrices uint64
	for _, x := range w.Tensors {
		if len(x.Shape) > 1 { // of which the embeddings once more, as the head
			matrices += 4 * uint64(len(x.Data))
		}
	}
	require.Less(t, after.TotalAlloc-before.TotalAlloc, matrices+matrices/10)
	runtime.KeepAlive(d)
}

// A vocabulary so large that the logits of a batch exceed a worker's bound is taken in pieces.
func TestALargeVocabularyIsSampledInPieces(t *testing.T) {
	cfg := smallConfig()
	cfg.VocabSize, cfg.HiddenSize, cfg.IntermediateSize, cfg.NumLayers, cfg.NumHeads = 300_000, 8, 8, 1, 2
	e := newEngine(t, cfg, native.Options{Seed: 3})
	w, err := e.Weights(t.Context())
	require.NoError(t, err)
	const slots = 30
	for _, threads := range []int{1, 2} {
		d, err := native.NewDecoder(cfg, w, gpu.DecoderOptions{Slots: slots, MaxTokens: 8}, threads)
		require.NoError(t, err)
		var in []gpu.Extension
		for i := range slots {
			slot, err := d.Open()
			require.NoError(t, err)
			in = append(in, gpu.Extension{
				Slot: slot, Tokens: []int32{int32(i), 5}, Sample: i%3 > 0, Temperature: 1, U: float64(i) / slots, TopLogprobs: i % 4,
			})
		}
		results, err := d.Extend(t.Context(), in)
		require.NoError(t, err)
		results = slices.Clone(results)
		for i, x := range in {
			d.Truncate(x.Slot, 0)
			alone, err := d.Extend(t.Context(), in[i:i+1])
			require.NoError(t, err)
			require.Equal(t, results[i], alone[0])
		}
	}
}
