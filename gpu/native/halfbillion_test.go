package native_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

// halfBillion is the shape of Qwen2.5-0.5B: 494,032,768 parameters.
func halfBillion() gpu.Config {
	return gpu.Config{
		ModelType: "qwen2", VocabSize: 151_936, HiddenSize: 896, IntermediateSize: 4864, NumLayers: 24, NumHeads: 14, NumKVHeads: 2,
		RopeTheta: 1e6, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 32_768, QKVBias: true, InitStd: 0.02,
	}
}

// halfBillionWeights are random, and bfloat16 as the published ones are.
func halfBillionWeights() *gpu.Weights {
	w := &gpu.Weights{Tensors: halfBillion().Layout()}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range w.Tensors {
		x := &w.Tensors[i]
		x.Data = make([]float32, x.Elements())
		for j := range x.Data {
			x.Data[j] = math.Float32frombits(math.Float32bits(0.04*r.Float32()-0.02) &^ 0xffff)
			if len(x.Shape) == 1 {
				x.Data[j]++
			}
		}
	}
	return w
}

func usage(b *testing.B) (u syscall.Rusage) {
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u
}

// report is tokens a second, milliseconds of processor time a token since before, and the process's largest resident set so far.
func report(b *testing.B, tokens int, before syscall.Rusage) {
	after := usage(b)
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	perSecond(b, tokens)
	b.ReportMetric(float64(cpu)/1e6/float64(b.N)/float64(tokens), "cpu-ms/token")
	b.ReportMetric(float64(after.Maxrss)*1024/1e9, "peak-GB")
}

// BenchmarkHalfBillionDecode samples with a context of 128 tokens, in float32 and in bfloat16.
func BenchmarkHalfBillionDecode(b *testing.B) {
	for _, dtype := range []gpu.DType{gpu.Float32, gpu.BFloat16} {
		for _, slots := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/%d", dtype, slots), func(b *testing.B) {
				d, err := native.NewDecoder(halfBillion(), halfBillionWeights(), gpu.DecoderOptions{Slots: slots, MaxTokens: 1024, DType: dtype}, 0)
				require.NoError(b, err)
				runtime.GC()
				in := make([]gpu.Extension, slots)
				for i := range in {
					slot, err := d.Open()
					require.NoError(b, err)
					in[i] = gpu.Extension{Slot: slot, Tokens: randomBatch(1000, 128).Tokens}
				}
				extend := func() {
					_, err := d.Extend(b.Context(), in)
					require.NoError(b, err)
				}
				extend()
				for i := range in {
					in[i].Tokens, in[i].Sample, in[i].Temperature, in[i].U = []int32{int32(i)}, true, 1, 0.5
				}
				extend()
				before := usage(b)
				for b.Loop() {
					extend()
				}
				report(b, slots, before)
			})
		}
	}
}

// BenchmarkHalfBillionTrain is a step over 4 sequences of 256 tokens, every token trained on, the forward pass in float32 and in
// bfloat16. Peaks are the process's: run each by itself.
func BenchmarkHalfBillionTrain(b *testing.B) {
	for _, dtype := range []gpu.DType{gpu.Float32, gpu.BFloat16} {
		b.Run(string(dtype), func(b *testing.B) { halfBillionTrain(b, dtype) })
	}
}

func halfBillionTrain(b *testing.B, dtype gpu.DType) {
	s := shape{cfg: halfBillion(), seqs: 4, length: 256, maskEvery: 1}
	e, err := native.New(s.cfg, native.Options{Seed: 1, DType: dtype})
	require.NoError(b, err)
	batch := s.batch()
	stated := native.Backend{Options: native.Options{DType: dtype}}.TrainingMemory(s.cfg, len(batch.Tokens))
	g := &gpu.Gradients{Logprobs: make([]float32, len(batch.Tokens))}
	for i := range g.Logprobs {
		g.Logprobs[i] = -1 / float32(len(batch.Tokens))
	}
	step := func() {
		require.NoError(b, e.Accumulate(b.Context(), []*gpu.Batch{batch}, func(int, *gpu.Outputs) (*gpu.Gradients, error) { return g, nil }))
		_, err := e.Step(b.Context(), gpu.StepOptions{LearningRate: 1e-6, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1})
		require.NoError(b, err)
	}
	step()
	before := usage(b)
	for b.Loop() {
		step()
	}
	report(b, len(batch.Tokens), before)
	b.ReportMetric(float64(stated.Total())/1e9, "stated-GB")
}
