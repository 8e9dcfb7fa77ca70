package native_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

// shape is one model with the batch it is measured on: seqs sequences of length tokens, every maskEvery-th
// token masked in.
type shape struct {
	name                    string
	cfg                     gpu.Config
	seqs, length, maskEvery int
}

func shapes() []shape {
	cfg := gpu.Config{
		ModelType: "llama", VocabSize: 512, HiddenSize: 128, IntermediateSize: 384, NumLayers: 4, NumHeads: 4,
		NumKVHeads: 2, RopeTheta: 1e4, RMSNormEps: 1e-5, TieEmbeddings: true, MaxPositions: 512,
	}
	big := cfg
	big.HiddenSize, big.IntermediateSize, big.NumLayers, big.NumHeads, big.NumKVHeads = 256, 768, 6, 8, 4
	demo := cfg
	demo.VocabSize, demo.HiddenSize, demo.IntermediateSize, demo.NumLayers, demo.NumHeads, demo.NumKVHeads = 1562, 64, 128, 3, 2, 2
	return []shape{{"d128", cfg, 32, 128, 1}, {"d256", big, 32, 128, 1}, {"demo", demo, 64, 49, 5}}
}

func (s shape) engine(b *testing.B) *native.Engine {
	e, err := native.New(s.cfg, native.Options{Seed: 1})
	require.NoError(b, err)
	return e
}

func (s shape) batch() *gpu.Batch {
	r := rand.New(rand.NewPCG(1, 1))
	b := &gpu.Batch{Offsets: []int{0}}
	for range s.seqs {
		for i := range s.length {
			b.Tokens = append(b.Tokens, int32(r.IntN(s.cfg.VocabSize)))
			b.Mask = append(b.Mask, uint8(min(1, max(0, 1-i%s.maskEvery))))
		}
		b.Offsets = append(b.Offsets, len(b.Tokens))
	}
	return b
}

func perSecond(b *testing.B, tokens int) {
	b.ReportMetric(float64(tokens)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
}

func BenchmarkForward(b *testing.B) {
	for _, s := range shapes() {
		b.Run(s.name, func(b *testing.B) {
			e, batch := s.engine(b), s.batch()
			forward := func() {
				_, err := e.Forward(b.Context(), batch, false)
				require.NoError(b, err)
			}
			forward()
			b.ReportAllocs()
			for b.Loop() {
				forward()
			}
			perSecond(b, len(batch.Tokens))
		})
	}
}

// BenchmarkTrain is a whole step: forward, backward, AdamW.
func BenchmarkTrain(b *testing.B) {
	for _, s := range shapes() {
		b.Run(s.name, func(b *testing.B) {
			e, batch := s.engine(b), s.batch()
			g := &gpu.Gradients{Logprobs: make([]float32, len(batch.Tokens))}
			for i := range g.Logprobs {
				g.Logprobs[i] = -1 / float32(len(batch.Tokens))
			}
			step := func() {
				_, err := e.Forward(b.Context(), batch, true)
				require.NoError(b, err)
				require.NoError(b, e.Backward(b.Context(), g))
				_, err = e.Step(b.Context(), gpu.StepOptions{LearningRate: 1e-4, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1})
				require.NoError(b, err)
			}
			step()
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
			perSecond(b, len(batch.Tokens))
		})
	}
}

// BenchmarkLargeVocabulary is a forward and a backward pass of a small trunk under the head of a large model.
func BenchmarkLargeVocabulary(b *testing.B) {
	s := shapes()[0]
	s.cfg.VocabSize, s.cfg.NumLayers, s.seqs, s.length, s.maskEvery = 150_000, 1, 2, 64, 1
	e, batch := s.engine(b), s.batch()
	g := &gpu.Gradients{Logprobs: make([]float32, len(batch.Tokens)), Entropies: make([]float32, len(batch.Tokens))}
	for i := range g.Logprobs {
		g.Logprobs[i], g.Entropies[i] = -1/float32(len(batch.Tokens)), 1e-3
	}
	for b.Loop() {
		_, err := e.Forward(b.Context(), batch, true)
		require.NoError(b, err)
		require.NoError(b, e.Backward(b.Context(), g))
	}
	perSecond(b, len(batch.Tokens))
}

// BenchmarkDecode extends every slot by one sampled token, over sequences 16 to 112 tokens long.
func BenchmarkDecode(b *testing.B) {
	for _, s := range shapes() {
		for _, slots := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/%d", s.name, slots), func(b *testing.B) {
				d, in := s.decoder(b, slots)
				prompt := make([]int32, 16)
				for i := range in {
					in[i].Tokens = prompt
				}
				_, err := d.Extend(b.Context(), in)
				require.NoError(b, err)
				for i := range in {
					in[i].Tokens = []int32{int32(i)}
				}
				length := len(prompt)
				b.ReportAllocs()
				for b.Loop() {
					_, err := d.Extend(b.Context(), in)
					require.NoError(b, err)
					if length++; length == 112 {
						length = len(prompt)
						for i := range in {
							d.Truncate(in[i].Slot, length)
						}
					}
				}
				perSecond(b, slots)
			})
		}
	}
}

// BenchmarkPrefill fills 16 empty caches with 64 tokens each, with a sample after them and without.
func BenchmarkPrefill(b *testing.B) {
	const slots, length = 16, 64
	for _, s := range shapes() {
		for _, sample := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/sample=%t", s.name, sample), func(b *testing.B) {
				d, in := s.decoder(b, slots)
				for i := range in {
					in[i].Tokens, in[i].Sample = make([]int32, length), sample
				}
				for b.Loop() {
					_, err := d.Extend(b.Context(), in)
					require.NoError(b, err)
					for i := range in {
						d.Truncate(in[i].Slot, 0)
					}
				}
				perSecond(b, slots*length)
			})
		}
	}
}

// decoder opens slots, and makes an extension that samples for each.
func (s shape) decoder(b *testing.B, slots int) (gpu.Decoder, []gpu.Extension) {
	w, err := s.engine(b).Weights(b.Context())
	require.NoError(b, err)
	d, err := native.NewDecoder(s.cfg, w, gpu.DecoderOptions{Slots: slots, MaxTokens: 128}, 0)
	require.NoError(b, err)
	in := make([]gpu.Extension, slots)
	for i := range in {
		slot, err := d.Open()
		require.NoError(b, err)
		in[i] = gpu.Extension{Slot: slot, Sample: true, Temperature: 1, U: float64(i) / float64(slots)}
	}
	return d, in
}

// BenchmarkWaysToTrain is a step at the widths of Qwen2.5-0.5B, of six of its blocks over a small vocabulary: as it is by default,
// with blocks computed again, with adapters, and with both. MB is what the engine holds after it.
func BenchmarkWaysToTrain(b *testing.B) {
	s := shape{"", gpu.Config{
		ModelType: "qwen2", VocabSize: 4096, HiddenSize: 896, IntermediateSize: 4864, NumLayers: 6, NumHeads: 14, NumKVHeads: 2,
		RopeTheta: 1e6, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 512, QKVBias: true,
	}, 4, 256, 1}
	lora := native.DefaultLoRA()
	lora.Rank = 16
	for _, o := range []struct {
		name    string
		options native.Options
	}{
		{"weights", native.Options{}},
		{"weights_recompute", native.Options{Recompute: true}},
		{"lora16", native.Options{LoRA: lora}},
		{"lora16_recompute", native.Options{LoRA: lora, Recompute: true}},
	} {
		b.Run(o.name, func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			e, err := native.New(s.cfg, o.options)
			require.NoError(b, err)
			batch := s.batch()
			up := upstream(len(batch.Tokens))
			up.Values = nil
			for b.Loop() {
				_, err := e.Forward(b.Context(), batch, true)
				require.NoError(b, err)
				require.NoError(b, e.Backward(b.Context(), up))
				_, err = e.Step(b.Context(), stepOptions)
				require.NoError(b, err)
			}
			perSecond(b, len(batch.Tokens))
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
			require.NoError(b, e.Close())
		})
	}
}
