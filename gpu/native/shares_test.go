package native_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// least runs something several times and returns the least processor time of all threads that one took, in seconds.
func least(b *testing.B, times int, do func()) float64 {
	best := 0.0
	for i := range times {
		before := usage(b)
		do()
		after := usage(b)
		took := float64(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()) / 1e9
		if i == 0 || took < best {
			best = took
		}
	}
	return best
}

// readAll reads an array on two threads, once.
func readAll(x []float32) (sum float32) {
	var wait sync.WaitGroup
	var parts [2]float32
	for i := range parts {
		half := x[i*len(x)/2 : (i+1)*len(x)/2]
		wait.Go(func() {
			for ; len(half) > 0; half = half[min(len(half), 1<<14):] {
				piece := half[:min(len(half), 1<<14)]
				parts[i] += kernel.Dot(piece, piece)
			}
		})
	}
	wait.Wait()
	return parts[0] + parts[1]
}

// BenchmarkShares measures decoding beside reading memory alone, and training beside the product of matrices that lie in the
// cache, all by processor time in one run: other work on the machine takes turns with it, and is not counted. A GB/s or GFLOP/s here
// is one of a core.
func BenchmarkShares(b *testing.B) {
	for range b.N {
		memory := make([]float32, 1<<28)
		for i := range memory {
			memory[i] = float32(i & 7)
		}
		const m, k, n = 384, 256, 512 // in the second-level cache
		x, y, z := make([]float32, m*k), make([]float32, n*k), make([]float32, m*n)
		packed := kernel.NewPacked(k, n)
		packed.Repack(y)
		reading := func() float64 { return 4 * float64(len(memory)) / least(b, 4, func() { readAll(memory) }) / 1e9 }
		product := func() float64 {
			const times = 400
			return 2 * m * k * n * times / least(b, 4, func() {
				for range times {
					kernel.MatMulPacked(z, x, packed, m, false)
				}
			}) / 1e9
		}

		// Decoding reads every weight for a token.
		for _, dtype := range []gpu.DType{gpu.Float32, gpu.BFloat16} {
			cfg := halfBillion()
			d, err := native.NewDecoder(cfg, halfBillionWeights(), gpu.DecoderOptions{Slots: 1, MaxTokens: 256, DType: dtype}, 2)
			require.NoError(b, err)
			slot, err := d.Open()
			require.NoError(b, err)
			in := []gpu.Extension{{Slot: slot, Tokens: []int32{1, 2, 3}, Sample: true, U: 0.5}}
			step := func() {
				_, err := d.Extend(b.Context(), in)
				require.NoError(b, err)
				in[0].Tokens = []int32{4}
			}
			step()
			bytes := 494e6 * float64(dtype.Bytes())
			alone := reading()
			at := bytes / least(b, 24, step) / 1e9
			alone = max(alone, reading())
			b.ReportMetric(at, fmt.Sprintf("decode-%s-GB/s", dtype))
			b.ReportMetric(100*at/alone, fmt.Sprintf("decode-%s-%%-of-%.1f", dtype, alone))
		}
		memory = nil

		for _, width := range []int{256, 512, 896} {
			cfg := gpu.Config{
				ModelType: "qwen2", VocabSize: 4096, HiddenSize: width, IntermediateSize: 4 * width, NumLayers: 4, NumHeads: width / 64, NumKVHeads: 2,
				RopeTheta: 1e6, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 1024,
			}
			if width == 896 {
				cfg.IntermediateSize = 4864
			}
			s := shape{cfg: cfg, seqs: 4, length: 256, maskEvery: 1}
			e, batch := s.engine(b), s.batch()
			tokens := float64(len(batch.Tokens))
			g := &gpu.Gradients{Logprobs: make([]float32, len(batch.Tokens))}
			for i := range g.Logprobs {
				g.Logprobs[i] = -1 / float32(tokens)
			}
			step := func() {
				require.NoError(b, e.Accumulate(b.Context(), []*gpu.Batch{batch}, func(int, *gpu.Outputs) (*gpu.Gradients, error) { return g, nil }))
				_, err := e.Step(b.Context(), gpu.StepOptions{LearningRate: 1e-6, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1})
				require.NoError(b, err)
			}
			step()
			matrices := 0.0
			for _, t := range cfg.Layout() {
				if len(t.Shape) == 2 {
					matrices += float64(t.Elements()) // tied: once as the head
				}
			}
			attention := 2 * 2 * float64(cfg.NumLayers*width) * 128 // half of 256 keys on average
			work := tokens * 3 * (2*matrices + attention)
			peak := product()
			at := work / least(b, 6, step) / 1e9
			peak = max(peak, product())
			b.ReportMetric(at, fmt.Sprintf("train-%d-GFLOP/s", width))
			b.ReportMetric(100*at/peak, fmt.Sprintf("train-%d-%%-of-%.0f", width, peak))
		}
	}
}
