package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkMatMul reports GFLOP/s at the shapes of the models in the tests and the demo, on one goroutine and
// on all processors.
func BenchmarkMatMul(b *testing.B) {
	for _, c := range []struct {
		l       layout
		m, k, n int
	}{
		{nt, 1, 64, 128},
		{nt, 4, 64, 128},
		{nt, 64, 64, 64},
		{nt, 2048, 64, 64},
		{nt, 4096, 64, 128},
		{nt, 4096, 128, 64},
		{nt, 1024, 64, 1562},
		{nn, 1024, 1562, 64},
		{nn, 4096, 128, 64},
		{tn, 1562, 1024, 64},
		{tn, 128, 4096, 64},
		{tn, 64, 4096, 128},
		{nt, 4096, 128, 384},
		{nt, 4096, 128, 512},
		{nt, 4096, 256, 768},
		{tn, 384, 4096, 128},
		{tn, 768, 4096, 256},
		{nt, 128, 32, 128},
		{nn, 128, 128, 32},
		{nt, 512, 512, 512},
		{nt, 1024, 1024, 1024},
	} {
		for _, pool := range []*Pool{nil, NewPool(0)} {
			b.Run(fmt.Sprintf("%v_%s/threads%d", c.l, shapeName(c.m, c.k, c.n), pool.Workers()), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 1))
				ar, ac, br, bc := c.l.rows(c.m, c.k, c.n)
				x, y, out := random(rng, ar*ac), random(rng, br*bc), make([]float32, c.m*c.n)
				p := c.l.product(out, c.n, x, ac, y, bc, c.m, c.k, c.n, false)
				for b.Loop() {
					best.runProduct(pool, p)
				}
				b.ReportMetric(2*float64(c.m)*float64(c.k)*float64(c.n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// BenchmarkInstructionSets is the same product on each instruction set that the processor has, on one goroutine.
func BenchmarkInstructionSets(b *testing.B) {
	const m, k, n = 512, 128, 384
	rng := rand.New(rand.NewPCG(1, 1))
	x, y, out := random(rng, m*k), random(rng, k*n), make([]float32, m*n)
	for _, s := range supportedSets() {
		for _, l := range []layout{nn, nt, tn} {
			_, ac, _, bc := l.rows(m, k, n)
			b.Run(fmt.Sprintf("%v/%v_%s", s, l, shapeName(m, k, n)), func(b *testing.B) {
				p := l.product(out, n, x, ac, y, bc, m, k, n, false)
				for b.Loop() {
					s.runProduct(nil, p)
				}
				b.ReportMetric(2*m*k*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// BenchmarkPacked is the decoder's product: few rows, weights packed beforehand.
func BenchmarkPacked(b *testing.B) {
	for _, m := range []int{1, 4, 16, 64} {
		for _, s := range [][2]int{{64, 128}, {64, 1562}, {128, 512}, {256, 768}} {
			k, n := s[0], s[1]
			b.Run(shapeName(m, k, n), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 1))
				x, w, out := random(rng, m*k), repacked(random(rng, n*k), k, n), make([]float32, m*n)
				for b.Loop() {
					MatMulPacked(out, x, w, m, false)
				}
				b.ReportMetric(2*float64(m)*float64(k)*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// BenchmarkDecodeShapes reports GB/s of weights that a decoder's product reads from memory, at the shapes of Qwen2.5-0.5B: enough
// copies of each matrix to leave the caches cold.
func BenchmarkDecodeShapes(b *testing.B) {
	pool := NewPool(0)
	for _, s := range [][2]int{{896, 9728}, {4864, 896}} {
		k, n := s[0], s[1]
		for _, kind := range []storage{floats, halves, pairs} {
			bytes := 2
			switch {
			case kind == floats:
				bytes = 4
			case kind == pairs && !hasDot:
				continue
			}
			name := [...]string{"float32", "bfloat16", "dot"}[kind]
			var ws []*Packed
			rng := rand.New(rand.NewPCG(1, 1))
			x := random(rng, n*k)
			for range 768 << 20 / (bytes * n * k) {
				w := &Packed{k: k, n: n, set: best, kind: kind}
				w.Repack(x)
				ws = append(ws, w)
			}
			for _, m := range []int{1, 4, 8, 16, 64} {
				a, out := random(rng, m*k), make([]float32, m*n)
				b.Run(fmt.Sprintf("%s/%s", name, shapeName(m, k, n)), func(b *testing.B) {
					i := 0
					for b.Loop() {
						pool.MatMulPacked(out, a, ws[i%len(ws)], m, false)
						i++
					}
					seconds := b.Elapsed().Seconds() / float64(b.N)
					b.ReportMetric(float64(bytes*n*k)/seconds/1e9, "GB/s")
					b.ReportMetric(2*float64(m)*float64(k)*float64(n)/seconds/1e9, "GFLOP/s")
				})
			}
		}
	}
}

// BenchmarkVectors reports elements a nanosecond of each elementwise function.
func BenchmarkVectors(b *testing.B) {
	const n = 4096
	rng := rand.New(rand.NewPCG(1, 1))
	x, y, z, u, v := random(rng, n), random(rng, n), random(rng, n), random(rng, n), random(rng, n)
	sq := make([]float32, n)
	Mul(sq, x, x)
	for _, f := range []struct {
		name string
		f    func()
	}{
		{"Exp", func() { Exp(z, x) }},
		{"ExpSum", func() { ExpSum(z, x, 1) }},
		{"SwiGLU", func() { SwiGLU(z, x, y) }},
		{"SwiGLUGrad", func() { SwiGLUGrad(u, v, x, y, sq) }},
		{"Dot", func() { Dot(x, y) }},
		{"Axpy", func() { Axpy(z, 1e-9, x) }},
		{"SumSquares", func() { SumSquares(x) }},
		{"Max", func() { Max(x) }},
		{"AdamW", func() {
			AdamW(z, u, sq, x, AdamWStep{LearningRate: 1e-4, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, GradScale: 1, Correction1: 1, Correction2: 1})
		}},
	} {
		b.Run(f.name, func(b *testing.B) {
			for b.Loop() {
				f.f()
			}
			b.ReportMetric(float64(n)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "elements/ns")
		})
	}
}
