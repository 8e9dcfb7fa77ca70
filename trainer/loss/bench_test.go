package loss

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkLosses runs over 128 rows of 8,192 tokens, of which one in four is tool output, and reports nanoseconds a token.
func BenchmarkLosses(b *testing.B) {
	const rows, width = 128, 8192
	random := rand.New(rand.NewPCG(1, 2))
	n := rows * width
	x := make([][]float64, 6)
	for k := range x {
		x[k] = make([]float64, n)
		for t := range n {
			x[k][t] = -random.Float64()
		}
	}
	batch := &Batch{
		Mask: make([]uint8, n), Logprobs: x[0], Proximal: x[1], Behaviour: x[2], Advantages: x[3], Reference: x[4],
	}
	for t := range n {
		if t/64%4 != 0 {
			batch.Mask[t] = 1
		}
	}
	for i := range rows + 1 {
		batch.Offsets = append(batch.Offsets, i*width)
	}
	for _, name := range Names() {
		b.Run(name, func(b *testing.B) {
			p, err := newOf(name, options{})
			if err != nil {
				b.Fatal(err)
			}
			var out Result
			if err := p.Loss(batch, &out); err != nil { // buffers are made here
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Loss(batch, &out); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/token")
		})
	}
}
