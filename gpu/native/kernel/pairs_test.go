package kernel

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// onDot skips the test on a processor that has no products of bfloat16.
func onDot(t *testing.T) {
	if !hasDot {
		t.Skip("this processor has no AVX512_BF16: NewPackedDot is NewPackedBF16")
	}
}

func TestDotIsBF16WhereTheProcessorHasNoSuchProduct(t *testing.T) {
	want := halves
	if hasDot {
		want = pairs
	}
	require.Equal(t, want, NewPackedDot(2, 2).kind)
}

func TestDotProductsAgreeWithThoseOfRoundedNumbers(t *testing.T) {
	onDot(t)
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.SampledFrom([]int{0, 1, 2, 5, 6, 7, 12, 13, 30, 100}).Draw(t, "m")
		k := rapid.SampledFrom([]int{0, 1, 2, 7, 8, 63, 64, 65, 128, 255, 256, 257, 600}).Draw(t, "k")
		n := rapid.SampledFrom([]int{0, 1, 15, 16, 17, 33, 48, 63, 64, 65, 130, 600}).Draw(t, "n")
		acc, pad := rapid.Bool().Draw(t, "acc"), rapid.IntRange(0, 2).Draw(t, "pad")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 7))
		a, b, c := random(rng, span(m, k, k+pad)), random(rng, n*k), random(rng, span(m, n, n+pad))
		w := NewPackedDot(k, n)
		w.Repack(b)
		held := portable.widenAll(allHalves(b))

		want := nt.product(append([]float32(nil), c...), n+pad, portable.widenAll(allHalves(a)), k+pad, held, k, m, k, n, acc)
		got := guardedCopy(c)
		NewPool(2).MatMulPackedStrided(Matrix{got.x, n + pad}, Matrix{a, k + pad}, w, m, acc)
		got.check(t)
		for i := range m {
			sums, size := naive(want, i)
			for j := range n {
				require.InDelta(t, sums[j], float64(got.x[i*(n+pad)+j]), 1e-6*size[j]+1e-30)
			}
			if k == 0 || n == 0 {
				continue // no row to take out
			}
			alone := append([]float32(nil), c[i*(n+pad):i*(n+pad)+n]...)
			MatMulPacked(alone, a[i*(k+pad):i*(k+pad)+k], w, 1, acc)
			require.Equal(t, bits(alone), bits(got.x[i*(n+pad):i*(n+pad)+n]), "row %d does not depend on the others", i)
		}
		row := make([]float32, k)
		for j := range n {
			w.Row(row, j)
			require.Equal(t, held[j*k:(j+1)*k], row)
		}
	})
}
