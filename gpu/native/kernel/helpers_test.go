package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onEach runs the test with the kernels of each instruction set of this processor.
func onEach(t *testing.T, f func(t *testing.T, s isa)) {
	for _, s := range supportedSets() {
		t.Run(s.String(), func(t *testing.T) { f(t, s) })
	}
}

func random(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// guarded is a copy of x between two stretches of a value that nobody may write.
type guarded struct{ all, x []float32 }

const guard = 12345.678

func guardedCopy(x []float32) guarded {
	g := guarded{all: make([]float32, len(x)+64)}
	for i := range g.all {
		g.all[i] = guard
	}
	g.x = g.all[32 : 32+len(x) : 32+len(x)]
	copy(g.x, x)
	return g
}

func (g guarded) check(t require.TestingT) {
	for i := range 32 {
		require.Equal(t, float32(guard), g.all[i], "written %d floats before the beginning", 32-i)
		require.Equal(t, float32(guard), g.all[len(g.all)-1-i], "written %d floats after the end", 32-i)
	}
}

func bits(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}

// ulps is the distance of got from want in units in the last place of float32 at want.
func ulps(got float32, want float64) float64 {
	w := float32(want)
	switch {
	case math.IsNaN(want):
		if got != got {
			return 0
		}
		return math.Inf(1)
	case math.IsInf(float64(w), 0) || math.IsInf(float64(got), 0):
		if got == w {
			return 0
		}
		// Next to the largest float32, infinity is one unit away.
		if math.Abs(want) > math.MaxFloat32*(1-1e-6) {
			return 1
		}
		return math.Inf(1)
	}
	unit := float64(math.Nextafter32(float32(math.Abs(want)), float32(math.Inf(1)))) - math.Abs(float64(float32(math.Abs(want))))
	if math.IsInf(unit, 0) {
		unit = math.Ldexp(1, 104)
	}
	return math.Abs(float64(got)-want) / unit
}

func shapeName(m, k, n int) string { return fmt.Sprintf("m%d_k%d_n%d", m, k, n) }

// repacked copies B[n,k], weights stored [out, in], for MatMulPacked.
func repacked(b []float32, k, n int) *Packed {
	w := NewPacked(k, n)
	w.Repack(b)
	return w
}
