package consumers

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/schemas"
)

func demoModel() gpu.Config {
	return gpu.Config{
		ModelType: "llama", VocabSize: 1562, HiddenSize: 64, IntermediateSize: 128, NumLayers: 3, NumHeads: 2, NumKVHeads: 2,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 256,
	}
}

// nativeSnapshot has starting weights from the version as the seed.
func nativeSnapshot(tb testing.TB, version int64) Snapshot {
	tb.Helper()
	e, err := native.New(demoModel(), native.Options{Seed: uint64(version)})
	require.NoError(tb, err)
	w, err := e.Weights(tb.Context())
	require.NoError(tb, err)
	return Snapshot{Version: version, Config: demoModel(), Weights: w}
}

func use(tb testing.TB, dec gpu.Decoder, s Snapshot) {
	tb.Helper()
	commit, err := dec.Prepare(s.Weights)
	require.NoError(tb, err)
	commit()
}

// alone generates with a decoder of its own, the whole context extended anew for every token.
func alone(tb testing.TB, weights map[int32]Snapshot, req *schemas.GenerateRequest, versions []int32) (tokens []int32, logprobs []float32) {
	tb.Helper()
	dec, err := native.NewDecoder(demoModel(), weights[0].Weights, gpu.DecoderOptions{Slots: 1, MaxTokens: 256}, 0)
	require.NoError(tb, err)
	slot, err := dec.Open()
	require.NoError(tb, err)
	sequence := append([]int32(nil), req.Tokens...)
	for _, version := range versions {
		use(tb, dec, weights[version])
		dec.Truncate(slot, 0)
		next, err := dec.Extend(tb.Context(), []gpu.Extension{{
			Slot: slot, Tokens: sequence, Sample: true, Temperature: req.Temperature, U: uniformAt(req.Seed, len(sequence)),
		}})
		require.NoError(tb, err)
		sequence = append(sequence, next[0].Token)
		tokens, logprobs = append(tokens, next[0].Token), append(logprobs, next[0].Logprob)
	}
	return tokens, logprobs
}

// Invariant: with real weights too, what a call samples is bit for bit what it would sample alone.
func TestInvariantNativeBatchingChangesNoToken(t *testing.T) {
	t.Parallel()
	weights := map[int32]Snapshot{}
	for version := range int32(3) {
		weights[version] = nativeSnapshot(t, int64(version))
	}
	cfg := DefaultConfig()
	cfg.Name, cfg.Slots, cfg.StepTokenBudget, cfg.Swap = "engine", 6, 16, SwapRecompute
	e := NewBatcher(cfg, native.Backend{}.NewDecoder, nil)
	runBatcher(t, &rig{Batcher: e})
	_, err := e.Swap(t.Context(), weights[0])
	require.NoError(t, err)

	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[*schemas.GenerateRequest]*schemas.GenerateChunk{}
	for episode := range 8 {
		wg.Go(func() {
			tokens := []int32{1}
			for turn := range 3 {
				for i := range 5 + 4*episode {
					tokens = append(tokens, int32((episode*31+turn*17+i*7)%1562))
				}
				req := &schemas.GenerateRequest{
					Episode: fmt.Sprint(episode), Tokens: append([]int32(nil), tokens...), MaxTokens: 12, Temperature: 1, Seed: uint64(episode),
				}
				chunk, err := gather(t.Context(), e, req)
				if err != nil {
					t.Error(err)
					return
				}
				tokens = append(tokens, chunk.Tokens...)
				mu.Lock()
				got[req] = chunk
				mu.Unlock()
			}
		})
	}
	for version := range int32(2) {
		_, err := e.Swap(t.Context(), weights[version+1])
		require.NoError(t, err)
	}
	wg.Wait()
	require.Len(t, got, 24)
	for req, chunk := range got {
		tokens, logprobs := alone(t, weights, req, chunk.Versions)
		require.Equal(t, tokens, []int32(chunk.Tokens))
		require.Equal(t, logprobs, []float32(chunk.Logprobs))
	}
}

// BenchmarkNative is the demo's model with 64 calls that sample: the engine beside the decoder alone.
func BenchmarkNative(b *testing.B) {
	const batch = 64
	s := nativeSnapshot(b, 0)
	b.Run("engine", func(b *testing.B) {
		cfg := DefaultConfig()
		e := NewBatcher(cfg, native.Backend{}.NewDecoder, nil)
		sw, err := e.prepareSwap(b.Context(), s)
		require.NoError(b, err)
		e.enqueueSwap(sw)
		step := func() {
			_, err := e.runStep(context.Background())
			require.NoError(b, err)
		}
		step()
		calls := make([]*call, batch)
		var sampled int
		for b.Loop() {
			for i, c := range calls {
				if c == nil || c.takeChunk().Done {
					calls[i], _ = e.submitCall(context.Background(), &schemas.GenerateRequest{
						Tokens: []int32{1, 2, 3}, MaxTokens: 48, Temperature: 1, Seed: uint64(i),
					})
				}
			}
			step()
			sampled += batch
		}
		b.ReportMetric(float64(sampled)/b.Elapsed().Seconds(), "tokens/s")
	})
	b.Run("decoder", func(b *testing.B) {
		dec, err := native.NewDecoder(demoModel(), s.Weights, gpu.DecoderOptions{Slots: batch, MaxTokens: 256}, 0)
		require.NoError(b, err)
		in := make([]gpu.Extension, batch)
		for i := range in {
			slot, err := dec.Open()
			require.NoError(b, err)
			in[i] = gpu.Extension{Slot: slot, Tokens: []int32{1, 2, 3}, Sample: true, Temperature: 1, U: float64(i) / batch}
		}
		var sampled, length int
		for b.Loop() {
			_, err := dec.Extend(context.Background(), in)
			require.NoError(b, err)
			sampled += batch
			length += len(in[0].Tokens)
			for i := range in {
				in[i].Tokens = []int32{5}
				if length >= 51 {
					dec.Truncate(in[i].Slot, 0)
					in[i].Tokens = []int32{1, 2, 3}
				}
			}
			if length >= 51 {
				length = 0
			}
		}
		b.ReportMetric(float64(sampled)/b.Elapsed().Seconds(), "tokens/s")
	})
	b.Run("swap", func(b *testing.B) {
		dec, err := native.NewDecoder(demoModel(), s.Weights, gpu.DecoderOptions{Slots: batch, MaxTokens: 256}, 0)
		require.NoError(b, err)
		for b.Loop() {
			use(b, dec, s)
		}
	})
}
