package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var lengths = []int{0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 1000}

func TestExpIsWithinTwoUlps(t *testing.T) {
	onEach(t, func(t *testing.T, s isa) {
		var src []float32
		for i := range 1 << 18 {
			src = append(src, -110+200*float32(i)/(1<<18))
		}
		rng := rand.New(rand.NewPCG(5, 5))
		for range 1 << 16 {
			src = append(src, math.Float32frombits(rng.Uint32()))
		}
		src = append(src, 88.72283, 88.72284, -87.33655, -103.27893, -103.97208, -103.97209, 0, float32(math.Copysign(0, -1)))
		dst := make([]float32, len(src))
		s.expElements(dst, src)
		worst, at := 0.0, float32(0)
		for i, x := range src {
			if u := ulps(dst[i], math.Exp(float64(x))); u > worst {
				worst, at = u, x
			}
		}
		t.Logf("worst error %.3f ulp at %v", worst, at)
		require.LessOrEqual(t, worst, 2.0, "at %v", at)
	})
}

func TestExpAtTheEdges(t *testing.T) {
	inf := float32(math.Inf(1))
	denormal := math.Float32frombits(1)
	onEach(t, func(t *testing.T, s isa) {
		src := []float32{inf, -inf, float32(math.NaN()), 0, float32(math.Copysign(0, -1)), denormal, -denormal, 1000, -1000, math.MaxFloat32, -math.MaxFloat32}
		want := []float32{inf, 0, 0, 1, 1, 1, 1, inf, 0, inf, 0}
		dst := make([]float32, len(src))
		s.expElements(dst, src)
		require.True(t, dst[2] != dst[2], "NaN passes")
		dst[2] = 0
		require.Equal(t, want, dst)
	})
}

// Invariant: an element of an elementwise function does not depend on where it stands.
func TestInvariantAnElementOfAnElementwiseFunctionDoesNotDependOnWhereItStands(t *testing.T) {
	onEach(t, func(t *testing.T, s isa) {
		unary := map[string]func(dst, src []float32){
			"exp":    s.expElements,
			"expSum": func(dst, src []float32) { s.expSum(dst, src, 0.5) },
			"swiglu": func(dst, src []float32) { s.swigluElements(dst, src, src) },
			"swigluGrad": func(dst, src []float32) {
				s.swigluGrad(make([]float32, len(src)), dst, src, src, src)
			},
			"add": func(dst, src []float32) { s.addElements(dst, src, src) },
			"mul": func(dst, src []float32) { s.mulElements(dst, src, src) },
			"axpy": func(dst, src []float32) {
				copy(dst, src)
				s.axpy(dst, 0.3, src)
			},
			"scale": func(dst, src []float32) {
				copy(dst, src)
				s.scaleElements(dst, 0.3)
			},
		}
		for name, f := range unary {
			rapid.Check(t, func(t *rapid.T) {
				rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 6))
				src := random(rng, rapid.IntRange(1, 100).Draw(t, "n"))
				i := rapid.IntRange(0, len(src)-1).Draw(t, "i")
				dst := guardedCopy(src)
				f(dst.x, src)
				dst.check(t)
				alone := make([]float32, 1)
				f(alone, src[i:i+1])
				require.Equal(t, math.Float32bits(alone[0]), math.Float32bits(dst.x[i]), name)
			})
		}
	})
}

func TestReductionsAgreeWithFloat64(t *testing.T) {
	onEach(t, func(t *testing.T, s isa) {
		rng := rand.New(rand.NewPCG(7, 7))
		for _, n := range lengths {
			a, b := random(rng, n), random(rng, n)
			var dot, dotSize, sum, sumSize, squares float64
			largest := math.Inf(-1)
			for i := range a {
				dot += float64(a[i]) * float64(b[i])
				dotSize += math.Abs(float64(a[i]) * float64(b[i]))
				sum += float64(a[i])
				sumSize += math.Abs(float64(a[i]))
				squares += float64(a[i]) * float64(a[i])
				largest = max(largest, float64(a[i]))
			}
			require.InDelta(t, dot, float64(s.dotProduct(a, b)), 1e-6*dotSize, "dot %d", n)
			require.InDelta(t, sum, float64(s.sumElements(a)), 1e-6*sumSize, "sum %d", n)
			require.InDelta(t, squares, s.sumSquares(a), 1e-12*squares, "sum of squares %d", n)
			require.Equal(t, largest, float64(s.maxElement(a)), "max %d", n)

			dst := make([]float32, n)
			total := s.expSum(dst, a, 1)
			var want float64
			for i := range a {
				require.LessOrEqual(t, ulps(dst[i], math.Exp(float64(a[i]-1))), 2.0)
				want += float64(dst[i])
			}
			require.InDelta(t, want, float64(total), 1e-6*want)
		}
	})
}

func TestMaxPassesNaNAndAllNegative(t *testing.T) {
	onEach(t, func(t *testing.T, s isa) {
		for _, n := range lengths[1:] {
			x := make([]float32, n)
			for i := range x {
				x[i] = -5
			}
			require.Equal(t, float32(-5), s.maxElement(x))
			for _, i := range []int{0, n / 2, n - 1} {
				x[i] = float32(math.NaN())
				got := s.maxElement(x)
				require.True(t, got != got, "n %d NaN at %d", n, i)
				x[i] = -5
			}
		}
	})
}

func close32(t *testing.T, want, got []float32, msg string) {
	for i := range want {
		require.InDelta(t, want[i], got[i], 2e-6*(1+math.Abs(float64(want[i]))), "%s [%d]", msg, i)
	}
}

func TestElementwiseAgreesWithFloat64(t *testing.T) {
	sig := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	onEach(t, func(t *testing.T, s isa) {
		rng := rand.New(rand.NewPCG(8, 8))
		for _, n := range lengths {
			g, u, d := random(rng, n), random(rng, n), random(rng, n)
			s.scaleElements(g, 4)
			swiglu, dgate, dup, axpy, add, mul := make([]float32, n), make([]float32, n), make([]float32, n),
				make([]float32, n), make([]float32, n), make([]float32, n)
			for i := range g {
				x, y, z := float64(g[i]), float64(u[i]), float64(d[i])
				slope := sig(x) * (1 + x*(1-sig(x)))
				swiglu[i] = float32(x * sig(x) * y)
				dgate[i], dup[i] = float32(z*y*slope), float32(z*x*sig(x))
				axpy[i], add[i], mul[i] = float32(y+0.7*x), float32(x+y), float32(x*y)
			}
			out, out2 := make([]float32, n), make([]float32, n)
			s.swigluElements(out, g, u)
			close32(t, swiglu, out, "swiglu")
			s.swigluGrad(out, out2, g, u, d)
			close32(t, dgate, out, "dgate")
			close32(t, dup, out2, "dup")
			s.swigluGrad(g, u, g, u, d)
			require.Equal(t, bits(out), bits(g), "dgate in place of gate")
			require.Equal(t, bits(out2), bits(u), "dup in place of up")
		}
		for _, n := range lengths {
			x, y := random(rng, n), random(rng, n)
			want := make([]float32, n)
			for i := range x {
				want[i] = y[i] + 0.7*x[i]
			}
			z := append([]float32(nil), y...)
			s.axpy(z, 0.7, x)
			close32(t, want, z, "axpy")
			s.addElements(z, x, y)
			for i := range x {
				require.Equal(t, x[i]+y[i], z[i])
			}
			s.mulElements(z, x, y)
			for i := range x {
				require.Equal(t, x[i]*y[i], z[i])
			}
		}
	})
}

func TestSwiGLUAtLargeGates(t *testing.T) {
	onEach(t, func(t *testing.T, s isa) {
		dst := make([]float32, 4)
		s.swigluElements(dst, []float32{200, -200, 1e30, -1e30}, []float32{2, 2, 2, 2})
		require.Equal(t, float32(400), dst[0])
		require.Equal(t, float32(0), float32(math.Abs(float64(dst[1]))))
		require.Equal(t, float32(2e30), dst[2])
		require.Equal(t, float32(0), float32(math.Abs(float64(dst[3]))))
	})
}

func TestAdamWAgreesWithFloat64(t *testing.T) {
	const lr, beta1, beta2, eps, decay, scale = 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5
	onEach(t, func(t *testing.T, s isa) {
		rng := rand.New(rand.NewPCG(9, 9))
		for _, n := range []int{0, 1, 15, 16, 17, 40} {
			w := random(rng, n)
			w64 := make([]float64, n)
			for i := range w {
				w64[i] = float64(w[i])
			}
			m, v := make([]float32, n), make([]float32, n)
			m64, v64 := make([]float64, n), make([]float64, n)
			for step := 1; step <= 10; step++ {
				g := random(rng, n)
				corr1, corr2 := 1-math.Pow(beta1, float64(step)), 1-math.Pow(beta2, float64(step))
				s.adamwElements(w, m, v, g, AdamWStep{
					LearningRate: lr, Beta1: beta1, Beta2: beta2, Epsilon: eps, Decay: decay, GradScale: scale,
					Correction1: float32(corr1), Correction2: float32(corr2),
				}.assemblyScalars())
				for i := range g {
					x := float64(g[i]) * scale
					m64[i] = beta1*m64[i] + (1-beta1)*x
					v64[i] = beta2*v64[i] + (1-beta2)*x*x
					w64[i] -= lr * (m64[i]/corr1/(math.Sqrt(v64[i]/corr2)+eps) + decay*w64[i])
				}
			}
			for i := range w {
				require.InDelta(t, w64[i], w[i], 1e-5)
				require.InDelta(t, m64[i], m[i], 1e-6)
				require.InDelta(t, v64[i], v[i], 1e-6)
			}
		}
	})
}
