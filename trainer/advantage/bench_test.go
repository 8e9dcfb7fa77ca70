package advantage

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// Benchmarks run over 1,024 trajectories of 8,192 tokens, of which one in four is tool output, in groups of eight, for a
// run without a critic but for gae. Each
// reports its time over that of reading its inputs once from memory on one processor: by the clock, the best of each
// (x-read), and by processor time, all of it (cpu-x-read).
const (
	benchRows   = 1024
	benchTokens = 8192
)

func benchBatch() *Batch {
	random := rand.New(rand.NewPCG(1, 2))
	n := benchRows * benchTokens
	b := &Batch{
		Mask: make([]uint8, n), Rewards: make([]float64, n), Values: make([]float64, n), Logprobs: make([]float64, n),
		ProbSquares: make([]float64, n), ProcessRewards: make([]float64, n), Tokens: make([]int32, n),
	}
	for t := range n {
		if t/64%4 != 0 { // turns of 192 tokens between tool outputs of 64
			b.Mask[t] = 1
		}
		b.Values[t], b.Logprobs[t] = random.Float64(), -random.Float64()
		b.ProbSquares[t], b.Tokens[t] = random.Float64(), int32(t%97)
	}
	for i := range benchRows {
		b.Offsets = append(b.Offsets, i*benchTokens)
		b.Group = append(b.Group, i/8)
		b.Agent, b.Episode = append(b.Agent, i%2), append(b.Episode, i/2)
		b.Baselines = append(b.Baselines, 0.5)
		b.Rewards[(i+1)*benchTokens-1] = float64(random.IntN(2))
		b.ProcessRewards[(i+1)*benchTokens-1] = random.Float64()
	}
	b.Offsets = append(b.Offsets, n)
	return b
}

// inputs are the arrays that an estimator reads beside the mask.
func inputs(name string, b *Batch) [][]float64 {
	switch name {
	case "gae":
		return [][]float64{b.Rewards, b.Values}
	case "optimal_token_baseline":
		return [][]float64{b.Rewards, b.Logprobs, b.ProbSquares}
	case "prime_rloo", "mt_grpo":
		return [][]float64{b.Rewards, b.ProcessRewards}
	default:
		return [][]float64{b.Rewards}
	}
}

// processorTime is what the process has used of all processors.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var sink float64

// read reads the mask and the arrays once.
func read(mask []uint8, arrays [][]float64) {
	count := 0
	for _, m := range mask {
		count += int(m)
	}
	sink = float64(count)
	for _, x := range arrays {
		var a, b, c, d float64
		for len(x) >= 4 {
			a, b, c, d = a+x[0], b+x[1], c+x[2], d+x[3]
			x = x[4:]
		}
		sink += a + b + c + d
	}
}

func BenchmarkEstimators(b *testing.B) {
	batch := benchBatch()
	for _, name := range Names() {
		b.Run(name, func(b *testing.B) {
			e, err := New(name, DefaultOptions())
			if err != nil {
				b.Fatal(err)
			}
			out := Result{AdvantagesOnly: true}
			if err := e.Estimate(batch, &out); err != nil { // buffers are made here
				b.Fatal(err)
			}
			arrays := inputs(name, batch)
			reading, estimating := time.Hour, time.Hour
			var readingCPU, estimatingCPU time.Duration
			b.ReportAllocs()
			for b.Loop() { // the best of each, as other work on the machine only ever adds
				began, beganCPU := time.Now(), processorTime(b)
				if err := e.Estimate(batch, &out); err != nil {
					b.Fatal(err)
				}
				estimated, estimatedCPU := time.Now(), processorTime(b)
				read(batch.Mask, arrays)
				reading = min(reading, time.Since(estimated))
				estimating = min(estimating, estimated.Sub(began))
				readingCPU += processorTime(b) - estimatedCPU
				estimatingCPU += estimatedCPU - beganCPU
			}
			b.ReportMetric(float64(estimating)/float64(reading), "x-read")
			b.ReportMetric(float64(estimatingCPU)/float64(readingCPU), "cpu-x-read")
			b.ReportMetric(float64(estimating.Microseconds())/1000, "best-ms")
			b.ReportMetric(float64(reading.Microseconds())/1000, "read-ms")
		})
	}
}
