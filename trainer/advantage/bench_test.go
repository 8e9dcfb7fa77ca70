package advantage

import (
	"encoding/binary"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rl/weir/trainer/stats"
)

// Benchmarks run over 1,024 trajectories of 8,192 tokens, of which one in four is tool output, in groups of eight, for a
// run without a critic but for those that read one. Each reports the best time of an estimate over the best time of
// reading its inputs once from memory, on as many processors and by turns with it: by the clock (x-read) and by
// processor time (cpu-x-read). Other work on the machine only ever adds, so the best is what comes nearest.
const (
	benchRows   = 1024
	benchTokens = 8192
	benchTurn   = 256 // tokens, the first quarter of them tool output
)

func benchBatch() *Batch {
	random := rand.New(rand.NewPCG(1, 2))
	n := benchRows * benchTokens
	b := &Batch{
		Mask: make([]uint8, n), Rewards: make([]float64, n), Values: make([]float64, n), StateValues: make([]float64, n),
		Logprobs:    make([]float64, n),
		ProbSquares: make([]float64, n), ProcessRewards: make([]float64, n), Tokens: make([]int32, n),
	}
	for t := range n {
		if t%benchTurn >= benchTurn/4 {
			b.Mask[t] = 1
		}
		b.Values[t], b.Logprobs[t] = random.Float64(), -random.Float64()
		b.ProbSquares[t], b.Tokens[t] = random.Float64(), int32(t%97)
		b.Rewards[t], b.ProcessRewards[t] = 0, 0 // pages never written to are all one page, which a cache holds
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

// inputs are what an estimator cannot do without and has one entry a token, beside the mask. Of the token ids, by which
// gigpo tells states apart, it needs those of tool output.
type inputs struct {
	arrays [][]float64
	tokens []int32
}

func inputsOf(name string, b *Batch) inputs {
	switch name {
	case "gae":
		return inputs{arrays: [][]float64{b.Rewards, b.Values}}
	case "optimal_token_baseline":
		return inputs{arrays: [][]float64{b.Rewards, b.Logprobs, b.ProbSquares}}
	case "prime_rloo", "mt_grpo":
		return inputs{arrays: [][]float64{b.Rewards, b.ProcessRewards}}
	case "gigpo":
		return inputs{arrays: [][]float64{b.Rewards}, tokens: b.Tokens}
	default:
		return inputs{arrays: [][]float64{b.Rewards}}
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

// read reads the mask and the inputs once, and writes what depends on all of it to sums, one a row.
func read(mask []uint8, in inputs, sums []float64) error {
	return stats.Parallel(benchRows, len(mask), func(first, end int) error {
		for i := first; i < end; i++ {
			lo, hi := i*benchTokens, (i+1)*benchTokens
			sums[i] = float64(readMask(mask[lo:hi]))
			for _, x := range in.arrays {
				sums[i] += stats.Total(x[lo:hi])
			}
			if in.tokens != nil {
				sums[i] += float64(readToolOutput(in.tokens[lo:hi]))
			}
		}
		return nil
	})
}

// readToolOutput reads the first quarter of each turn's tokens.
func readToolOutput(tokens []int32) int32 {
	var sum int32
	for lo := 0; lo < len(tokens); lo += benchTurn {
		for _, id := range tokens[lo : lo+benchTurn/4] {
			sum += id
		}
	}
	return sum
}

// readMask reads a mask a word at a time.
func readMask(mask []uint8) uint64 {
	var x, y uint64
	for len(mask) >= 16 {
		x, y = x|binary.LittleEndian.Uint64(mask), y|binary.LittleEndian.Uint64(mask[8:])
		mask = mask[16:]
	}
	return x | y
}

// evict goes over so much memory that no cache holds the batch afterwards.
func evict(other []uint64) {
	for i := 0; i < len(other); i += 8 {
		other[i]++
	}
}

// fastest are the least wall clock and processor time of any call.
type fastest struct{ clock, processor time.Duration }

func (f *fastest) measure(b *testing.B, call func()) {
	began, used := time.Now(), processorTime(b)
	call()
	clock, processor := time.Since(began), processorTime(b)-used
	if f.clock == 0 {
		*f = fastest{clock, processor}
	}
	f.clock, f.processor = min(f.clock, clock), min(f.processor, processor)
}

func BenchmarkEstimators(b *testing.B) {
	batch := benchBatch()
	other := make([]uint64, 1<<26)
	for _, name := range Names() {
		b.Run(name, func(b *testing.B) {
			e, err := newOf(name, defaultOptions())
			if err != nil {
				b.Fatal(err)
			}
			out := Result{AdvantagesOnly: true}
			if err := e.Estimate(batch, &out); err != nil { // buffers are made here
				b.Fatal(err)
			}
			in, sums := inputsOf(name, batch), make([]float64, benchRows)
			var estimating, reading fastest
			b.ReportAllocs()
			for b.Loop() {
				evict(other)
				estimating.measure(b, func() { err = e.Estimate(batch, &out) })
				if err != nil {
					b.Fatal(err)
				}
				evict(other)
				reading.measure(b, func() { err = read(batch.Mask, in, sums) })
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(estimating.clock)/float64(reading.clock), "x-read")
			b.ReportMetric(float64(estimating.processor)/float64(reading.processor), "cpu-x-read")
			b.ReportMetric(float64(estimating.clock.Microseconds())/1000, "best-ms")
			b.ReportMetric(float64(reading.clock.Microseconds())/1000, "read-ms")
		})
	}
}
