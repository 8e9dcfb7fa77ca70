package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// layout says how a product reads its operands.
type layout int

const (
	nn layout = iota
	nt
	tn
)

func (l layout) String() string { return [...]string{"NN", "NT", "TN"}[l] }

// shapes of A and B as stored.
func (l layout) rows(m, k, n int) (ar, ac, br, bc int) {
	switch l {
	case nn:
		return m, k, k, n
	case nt:
		return m, k, n, k
	default:
		return k, m, k, n
	}
}

func (l layout) product(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, k, n int, acc bool) *product {
	p := &product{c: c, ldc: ldc, a: a, ars: lda, acs: 1, b: b, brs: ldb, bcs: 1, m: m, k: k, n: n, acc: acc}
	if l == nt {
		p.brs, p.bcs = 1, ldb
	}
	if l == tn {
		p.ars, p.acs = 1, lda
	}
	return p
}

// naive computes in float64 what row i of a product should be, and for each element the sum of the magnitudes.
func naive(p *product, i int) (want, size []float64) {
	want, size = make([]float64, p.n), make([]float64, p.n)
	for j := range p.n {
		var s, mag float64
		if p.acc {
			s = float64(p.c[i*p.ldc+j])
			mag = math.Abs(s)
		}
		for q := range p.k {
			x := float64(p.a[i*p.ars+q*p.acs]) * float64(p.b[q*p.brs+j*p.bcs])
			s += x
			mag += math.Abs(x)
		}
		want[j], size[j] = s, mag
	}
	return want, size
}

// span is the number of floats that a matrix with leading dimension ld takes.
func span(rows, cols, ld int) int {
	if rows == 0 || cols == 0 {
		return 0
	}
	return (rows-1)*ld + cols
}

func checkProduct(t require.TestingT, s isa, pool *Pool, l layout, m, k, n, pad int, acc bool, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	ar, ac, br, bc := l.rows(m, k, n)
	lda, ldb, ldc := ac+pad, bc+pad, n+pad
	a, b := random(rng, span(ar, ac, lda)), random(rng, span(br, bc, ldb))
	c := guardedCopy(random(rng, span(m, n, ldc)))
	before := append([]float32(nil), c.x...)
	p := l.product(c.x, ldc, a, lda, b, ldb, m, k, n, acc)
	s.runProduct(pool, p)
	c.check(t)
	was := *p
	was.c = before
	for i := 0; i < m; i += 1 + m*k*n/1_000_000 {
		want, size := naive(&was, i)
		for j := range n {
			got, tolerance := float64(c.x[i*ldc+j]), size[j]*1e-6+1e-30
			if math.Abs(got-want[j]) > tolerance {
				require.Failf(t, "wrong element", "%v %v [%d,%d] = %v, want %v within %v (%s pad %d acc %v)",
					s, l, i, j, got, want[j], tolerance, shapeName(m, k, n), pad, acc)
			}
		}
		if i < m-1 && n > 0 {
			require.Equal(t, before[i*ldc+n:(i+1)*ldc], c.x[i*ldc+n:(i+1)*ldc], "written between the rows")
		}
	}
}

func TestProductsAgreeWithNaive(t *testing.T) {
	onEach(t, func(t *testing.T, s isa) {
		rapid.Check(t, func(t *rapid.T) {
			small := rapid.SampledFrom([]int{0, 1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 130})
			deep := rapid.SampledFrom([]int{0, 1, 2, 7, 8, 9, 16, 64, 127, 128, 129, 256, 257, 300})
			checkProduct(t, s, nil, rapid.SampledFrom([]layout{nn, nt, tn}).Draw(t, "layout"),
				small.Draw(t, "m"), deep.Draw(t, "k"), small.Draw(t, "n"), rapid.IntRange(0, 3).Draw(t, "pad"),
				rapid.Bool().Draw(t, "acc"), rapid.Uint64().Draw(t, "seed"))
		})
	})
}

func TestProductsOfEveryTileHeightAndWidth(t *testing.T) {
	onEach(t, func(t *testing.T, s isa) {
		for _, l := range []layout{nn, nt, tn} {
			for m := 1; m <= 14; m++ {
				for n := 1; n <= 66; n += 1 + n%5 {
					checkProduct(t, s, nil, l, m, 5, n, 0, false, 7)
				}
			}
		}
	})
}

func TestProductsAtModelShapes(t *testing.T) {
	pool := NewPool(3)
	onEach(t, func(t *testing.T, s isa) {
		for _, c := range []struct {
			l       layout
			m, k, n int
		}{
			{nt, 100, 64, 1562},
			{nn, 100, 390, 64},
			{tn, 700, 150, 64},
			{nt, 200, 130, 260},
			{tn, 200, 300, 130},
			{nn, 30, 20, 600},
			{nn, 600, 20, 200},
		} {
			checkProduct(t, s, pool, c.l, c.m, c.k, c.n, 1, true, 3)
		}
	})
}

// Invariant: a row of a product does not depend on the other rows.
func TestInvariantRowOfAProductDoesNotDependOnTheOtherRows(t *testing.T) {
	pools := []*Pool{nil, NewPool(2), NewPool(5)}
	onEach(t, func(t *testing.T, s isa) {
		rapid.Check(t, func(t *rapid.T) {
			l := rapid.SampledFrom([]layout{nn, nt, tn}).Draw(t, "layout")
			m := rapid.IntRange(1, 300).Draw(t, "m")
			k := rapid.SampledFrom([]int{1, 8, 33, 64, 128, 200, 400}).Draw(t, "k")
			n := rapid.SampledFrom([]int{1, 15, 16, 17, 31, 33, 64, 100, 128, 600}).Draw(t, "n")
			acc := rapid.Bool().Draw(t, "acc")
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
			ar, ac, br, bc := l.rows(m, k, n)
			a, b, c := random(rng, ar*ac), random(rng, br*bc), random(rng, m*n)
			i := rapid.IntRange(0, m-1).Draw(t, "row")

			alone := append([]float32(nil), c[i*n:(i+1)*n]...)
			row := make([]float32, k)
			for q := range k {
				if l == tn {
					row[q] = a[q*ac+i]
				} else {
					row[q] = a[i*ac+q]
				}
			}
			lda := k
			if l == tn {
				lda = 1
			}
			s.runProduct(nil, l.product(alone, n, row, lda, b, bc, 1, k, n, acc))

			pool := rapid.SampledFrom(pools).Draw(t, "pool")
			s.runProduct(pool, l.product(c, n, a, ac, b, bc, m, k, n, acc))
			require.Equal(t, bits(alone), bits(c[i*n:(i+1)*n]))
		})
	})
}

// Invariant: the three layouts and both vector widths give the same bits.
func TestInvariantTheThreeLayoutsAndBothVectorWidthsGiveTheSameBits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.IntRange(1, 40).Draw(t, "m")
		k := rapid.IntRange(1, 300).Draw(t, "k")
		n := rapid.IntRange(1, 150).Draw(t, "n")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		a, b := random(rng, m*k), random(rng, k*n)
		at, bt := transposed(a, m, k), transposed(b, k, n)
		var want []uint32
		for _, s := range supportedSets() {
			if s == portable && len(supportedSets()) > 1 {
				continue
			}
			for _, p := range []*product{
				nn.product(make([]float32, m*n), n, a, k, b, n, m, k, n, false),
				nt.product(make([]float32, m*n), n, a, k, bt, k, m, k, n, false),
				tn.product(make([]float32, m*n), n, at, m, b, n, m, k, n, false),
			} {
				s.runProduct(nil, p)
				if want == nil {
					want = bits(p.c)
				}
				require.Equal(t, want, bits(p.c), s.String())
			}
		}
	})
}

func transposed(x []float32, rows, cols int) []float32 {
	out := make([]float32, len(x))
	for i := range rows {
		for j := range cols {
			out[j*rows+i] = x[i*cols+j]
		}
	}
	return out
}

func TestPackedHasTheBitsOfNT(t *testing.T) {
	onEach(t, func(t *testing.T, s isa) {
		rng := rand.New(rand.NewPCG(1, 4))
		for _, c := range [][3]int{{1, 64, 1562}, {3, 64, 64}, {17, 129, 33}, {64, 300, 130}, {0, 3, 3}, {2, 0, 3}, {2, 3, 0}} {
			m, k, n := c[0], c[1], c[2]
			a, b := random(rng, m*k), random(rng, n*k)
			want, got := make([]float32, m*n), make([]float32, m*n)
			s.runProduct(nil, nt.product(want, n, a, k, b, k, m, k, n, false))
			w := &Packed{k: k, n: n, set: s}
			w.Repack(random(rng, n*k))
			w.Repack(b)
			NewPool(2).MatMulPacked(got, a, w, m, false)
			require.Equal(t, bits(want), bits(got), shapeName(m, k, n))
			cut := k * (n / 3)
			w.Repack(b[:cut], nil, b[cut:2*cut], b[2*cut:])
			NewPool(2).MatMulPacked(got, a, w, m, false)
			require.Equal(t, bits(want), bits(got), "in parts, %s", shapeName(m, k, n))
		}
	})
}

func TestProductsPassNaNAndInf(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	onEach(t, func(t *testing.T, s isa) {
		for _, l := range []layout{nn, nt, tn} {
			m, k, n := 9, 70, 67
			a, b, c := make([]float32, m*k), make([]float32, k*n), make([]float32, m*n)
			for i := range a {
				a[i] = 1
			}
			for i := range b {
				b[i] = 1
			}
			set := func(i, q int, v float32) {
				if l == tn {
					a[q*m+i] = v
				} else {
					a[i*k+q] = v
				}
			}
			set(2, 69, nan)
			set(8, 0, inf)
			_, ac, _, bc := l.rows(m, k, n)
			s.runProduct(nil, l.product(c, n, a, ac, b, bc, m, k, n, false))
			for i := range m {
				for j := range n {
					got := c[i*n+j]
					switch i {
					case 2:
						require.True(t, got != got, "NaN lost at column %d", j)
					case 8:
						require.Equal(t, inf, got)
					default:
						require.Equal(t, float32(k), got)
					}
				}
			}
		}
	})
}

func TestPublicProducts(t *testing.T) {
	a := []float32{1, 2, 3, 4, 5, 6} // [2, 3]
	b := []float32{1, 0, 0, 1, 1, 1} // [3, 2]
	want := []float32{4, 5, 10, 11}
	at, bt := transposed(a, 2, 3), transposed(b, 3, 2)
	pool := NewPool(2)
	for name, f := range map[string]func(c []float32){
		"MatMul":        func(c []float32) { MatMul(c, a, b, 2, 3, 2, false) },
		"MatMulNT":      func(c []float32) { MatMulNT(c, a, bt, 2, 3, 2, false) },
		"MatMulTN":      func(c []float32) { MatMulTN(c, at, b, 2, 3, 2, false) },
		"Pool.MatMul":   func(c []float32) { pool.MatMul(c, a, b, 2, 3, 2, false) },
		"Pool.MatMulNT": func(c []float32) { pool.MatMulNT(c, a, bt, 2, 3, 2, false) },
		"Pool.MatMulTN": func(c []float32) { pool.MatMulTN(c, at, b, 2, 3, 2, false) },
		"Strided":       func(c []float32) { MatMulStrided(Matrix{c, 2}, Matrix{a, 3}, Matrix{b, 2}, 2, 3, 2, false) },
		"NTStrided":     func(c []float32) { MatMulNTStrided(Matrix{c, 2}, Matrix{a, 3}, Matrix{bt, 3}, 2, 3, 2, false) },
		"TNStrided":     func(c []float32) { MatMulTNStrided(Matrix{c, 2}, Matrix{at, 2}, Matrix{b, 2}, 2, 3, 2, false) },
		"Packed":        func(c []float32) { MatMulPacked(c, a, repacked(bt, 3, 2), 2, false) },
		"twice half": func(c []float32) {
			clear(c)
			MatMul(c, a, b, 2, 3, 2, true)
		},
	} {
		c := []float32{9, 9, 9, 9}
		f(c)
		require.Equal(t, want, c, name)
	}
}

func TestShapesThatDoNotFitPanic(t *testing.T) {
	x := make([]float32, 12)
	for name, f := range map[string]func(){
		"kernel.MatMul: C is [4, 4] with rows 4 apart: does not fit in 12 floats":    func() { MatMul(x, x, x, 4, 3, 4, false) },
		"kernel.MatMulNT: B is [5, 3] with rows 3 apart: does not fit in 12 floats":  func() { MatMulNT(x, x, x, 2, 3, 5, false) },
		"kernel.MatMulTN: A is [13, 1] with rows 1 apart: does not fit in 12 floats": func() { MatMulTN(x, x, x, 1, 13, 1, false) },
		"kernel.MatMul: A is [2, 3] with rows 2 apart: does not fit in 12 floats": func() {
			MatMulStrided(Matrix{x, 2}, Matrix{x, 2}, Matrix{x, 2}, 2, 3, 2, false)
		},
		"kernel.MatMul: m=-1 k=1 n=1: must not be negative": func() { MatMul(x, x, x, -1, 1, 1, false) },
		"kernel.Dot: b has 3 elements, want 4":              func() { Dot(x[:4], x[:3]) },
	} {
		require.PanicsWithValue(t, name, f)
	}
}

func TestPoolCoversEachIndexOnceAndNests(t *testing.T) {
	for _, workers := range []int{1, 2, 7} {
		pool := NewPool(workers)
		for _, n := range []int{0, 1, 5, 100, 1001} {
			hits := make([]int, n)
			pool.ParallelFor(n, 3, func(lo, hi int) {
				pool.ParallelFor(hi-lo, 1, func(a, b int) {
					for i := lo + a; i < lo+b; i++ {
						hits[i]++
					}
				})
			})
			for i, h := range hits {
				require.Equal(t, 1, h, fmt.Sprint(workers, n, i))
			}
		}
	}
}

func TestPoolRaisesAPanicOnTheCaller(t *testing.T) {
	pool := NewPool(3)
	for range 20 {
		require.PanicsWithValue(t, "bad", func() {
			pool.ParallelFor(100, 1, func(lo, _ int) {
				if lo > 30 {
					panic("bad")
				}
			})
		})
		pool.ParallelFor(10, 1, func(int, int) {})
	}
	require.Equal(t, int64(2), pool.idle.Load(), "every helper is given back")
}
