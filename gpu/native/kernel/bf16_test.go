package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// widenAll and roundAll are WidenBF16 and RoundBF16 with the kernels of a set.
func (s isa) widenAll(src []uint16) []float32 {
	dst := make([]float32, len(src))
	for i := s.widenVectors(dst, src); i < len(src); i++ {
		dst[i] = widenOne(src[i])
	}
	return dst
}

func (s isa) roundAll(src []float32) []uint16 {
	dst := make([]uint16, len(src))
	for i := s.roundVectors(dst, src); i < len(src); i++ {
		dst[i] = roundOne(src[i])
	}
	return dst
}

func allHalves(x []float32) []uint16 { return portable.roundAll(x) }

func TestRoundingToBF16IsToNearestEven(t *testing.T) {
	for _, c := range []struct {
		bits uint32
		want uint16
	}{
		{0, 0},
		{0x80000000, 0x8000},
		{0x3f800000, 0x3f80},
		{0x3f808000, 0x3f80}, // halfway: even
		{0x3f808001, 0x3f81},
		{0x3f818000, 0x3f82}, // halfway: even
		{0x3f817fff, 0x3f81},
		{0x7f7f7fff, 0x7f7f},
		{0x7f7f8000, 0x7f80}, // rounds to infinity
		{0x7f800000, 0x7f80},
		{0xff800000, 0xff80},
		{0x7f800001, 0x7fc0}, // NaN stays one
		{0xffc12345, 0xffc1},
		{0x00000001, 0},
		{0x00008001, 1}, // denormals are kept
		{0x80018000, 0x8002},
	} {
		onEach(t, func(t *testing.T, s isa) {
			src := make([]float32, 17)
			for i := range src {
				src[i] = math.Float32frombits(c.bits)
			}
			for _, got := range s.roundAll(src) {
				require.Equal(t, c.want, got, "%#x", c.bits)
			}
		})
	}
}

func TestConversionsOfEveryBF16(t *testing.T) {
	every := make([]uint16, 1<<16)
	for i := range every {
		every[i] = uint16(i)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	anything := make([]float32, 1<<16+3)
	for i := range anything {
		anything[i] = math.Float32frombits(rng.Uint32())
	}
	want := portable.roundAll(anything)
	onEach(t, func(t *testing.T, s isa) {
		wide := s.widenAll(every)
		wantWide, wantBack := make([]uint32, len(every)), make([]uint16, len(every))
		for i, x := range wide {
			wantWide[i], wantBack[i] = uint32(i)<<16, uint16(i)
			if x != x {
				wantBack[i] |= 0x40 // NaN stays one
			}
		}
		require.Equal(t, wantWide, bits(wide))
		require.Equal(t, wantBack, s.roundAll(wide))
		require.Equal(t, want, s.roundAll(anything))
	})
}

func TestPublicConversions(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, n := range lengths {
		x := random(rng, n)
		h, back := make([]uint16, n), make([]float32, n)
		RoundBF16(h, x)
		require.Equal(t, allHalves(x), h)
		WidenBF16(back, h)
		require.Equal(t, portable.widenAll(h), back)
	}
	require.PanicsWithValue(t, "kernel.RoundBF16: src has 2 elements, want 3", func() { RoundBF16(make([]uint16, 3), make([]float32, 2)) })
	require.PanicsWithValue(t, "kernel.WidenBF16: src has 3 elements, want 2", func() { WidenBF16(make([]float32, 2), make([]uint16, 3)) })
}

// Invariant: products with a Packed have the bits of MatMulNT's with the numbers that it holds.
func TestInvariantProductsWithAPackedHaveTheBitsOfMatMulNTsWithTheNumbersThatItHolds(t *testing.T) {
	pools := []*Pool{nil, NewPool(2), NewPool(5)}
	onEach(t, func(t *testing.T, s isa) {
		rapid.Check(t, func(t *rapid.T) {
			m := rapid.SampledFrom([]int{0, 1, 2, 3, 6, 7, 8, 12, 13, 23, 24, 25, 48, 100}).Draw(t, "m")
			k := rapid.SampledFrom([]int{0, 1, 7, 8, 64, 65, 127, 128, 130, 256, 300}).Draw(t, "k")
			n := rapid.SampledFrom([]int{0, 1, 7, 15, 16, 17, 33, 48, 63, 64, 65, 130, 600}).Draw(t, "n")
			bf16, acc := rapid.Bool().Draw(t, "bf16"), rapid.Bool().Draw(t, "acc")
			pad := rapid.IntRange(0, 2).Draw(t, "pad")
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
			a, b, c := random(rng, span(m, k, k+pad)), random(rng, n*k), random(rng, span(m, n, n+pad))

			w := &Packed{k: k, n: n, set: s}
			if bf16 {
				w.kind = halves
			}
			cut := k * (n / 3)
			w.Repack(b[:cut], nil, b[cut:])
			held := b
			if bf16 {
				held = portable.widenAll(allHalves(b))
			}

			want := append([]float32(nil), c...)
			s.runProduct(nil, nt.product(want, n+pad, a, k+pad, held, k, m, k, n, acc))
			got := guardedCopy(c)
			rapid.SampledFrom(pools).Draw(t, "pool").MatMulPackedStrided(Matrix{got.x, n + pad}, Matrix{a, k + pad}, w, m, acc)
			got.check(t)
			require.Equal(t, bits(want), bits(got.x))

			row := make([]float32, k)
			for j := range n {
				w.Row(row, j)
				require.Equal(t, held[j*k:(j+1)*k], row, "row %d", j)
			}
		})
	})
}

// plain is numbers that every processor makes alike.
func plain(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(int32(rng.Uint32())>>8) / (1 << 22)
	}
	return x
}

// The sum is that of AVX2, AVX-512 and NEON: each takes the products of an element in order and rounds each once.
func TestProductsHaveTheSameBitsOnEveryProcessorWithFusedMultiplyAdd(t *testing.T) {
	const want = "53fa6147b5aa57d26343afd4816c3ab8c5c3dd3cf3b0879490f07729676d765c"
	for _, s := range supportedSets() {
		if s == portable {
			continue
		}
		rng, sum := rand.New(rand.NewPCG(8, 8)), sha256.New()
		for _, c := range [][3]int{{1, 300, 147}, {5, 64, 33}, {50, 129, 130}} {
			m, k, n := c[0], c[1], c[2]
			a, b, at := plain(rng, m*k), plain(rng, n*k), plain(rng, k*m)
			for _, kind := range []storage{floats, halves} {
				w, c := &Packed{k: k, n: n, set: s, kind: kind}, make([]float32, m*n)
				w.Repack(b)
				MatMulPacked(c, a, w, m, false)
				require.NoError(t, binary.Write(sum, binary.LittleEndian, c))
			}
			out := make([]float32, m*n)
			s.runProduct(nil, tn.product(out, n, at, m, b, n, m, k, n, false))
			require.NoError(t, binary.Write(sum, binary.LittleEndian, out))
		}
		require.Equal(t, want, hex.EncodeToString(sum.Sum(nil)), s.String())
	}
}

func TestABF16ProductHasTheSameBitsOnBothVectorWidths(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, m := range []int{1, 5, 30} {
		k, n := 200, 147
		a, b := random(rng, m*k), random(rng, n*k)
		var want []uint32
		for _, s := range supportedSets() {
			if s == portable && len(supportedSets()) > 1 {
				continue
			}
			w, c := &Packed{k: k, n: n, set: s, kind: halves}, make([]float32, m*n)
			w.Repack(b)
			MatMulPacked(c, a, w, m, false)
			if want == nil {
				want = bits(c)
			}
			require.Equal(t, want, bits(c), s.String())
		}
	}
}

func TestABF16ProductPassesNaNAndInf(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	onEach(t, func(t *testing.T, s isa) {
		const k, n = 70, 67
		b := make([]float32, n*k)
		for i := range b {
			b[i] = 1
		}
		b[2*k+69], b[66*k] = nan, inf
		w := &Packed{k: k, n: n, set: s, kind: halves}
		w.Repack(b)
		for _, m := range []int{1, 30} {
			a, c := make([]float32, m*k), make([]float32, m*n)
			for i := range a {
				a[i] = 1
			}
			MatMulPacked(c, a, w, m, false)
			for i, got := range c {
				switch i % n {
				case 2:
					require.True(t, got != got, "NaN lost")
				case 66:
					require.Equal(t, inf, got)
				default:
					require.Equal(t, float32(k), got)
				}
			}
		}
	})
}

func TestPackedRefusesWhatDoesNotFit(t *testing.T) {
	w := NewPackedBF16(3, 2)
	k, n := w.Shape()
	require.Equal(t, []int{3, 2}, []int{k, n})
	require.PanicsWithValue(t, "kernel.Repack: B is [2, 3] with rows 3 apart: does not fit in 5 floats", func() { w.Repack(make([]float32, 5)) })
	w.Repack([]float32{1, 2, 3, 4, 5, 6})
	require.PanicsWithValue(t, "kernel.Row: row 2 of 2", func() { w.Row(make([]float32, 3), 2) })
	require.PanicsWithValue(t, "kernel.Row: dst has 2 elements, want 3", func() { w.Row(make([]float32, 2), 1) })
}
