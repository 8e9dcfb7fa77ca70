package safetensors

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// slowF16 is the value of a half-precision number by its definition.
func slowF16(h uint16) float64 {
	sign, e, f := 1.0, int(h>>10&0x1f), float64(h&0x3ff)
	if h&0x8000 != 0 {
		sign = -1
	}
	switch e {
	case 0:
		return sign * math.Ldexp(f, -24)
	case 31:
		if f != 0 {
			return math.NaN()
		}
		return sign * math.Inf(1)
	}
	return sign * math.Ldexp(1024+f, e-25)
}

func TestF16KeepsEveryNumberThatItHas(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		v, want := fromF16(h), slowF16(h)
		if math.IsNaN(want) {
			require.True(t, v != v && math.Signbit(float64(v)) == (h&0x8000 != 0), "%04x", h)
			require.True(t, math.IsNaN(slowF16(toF16(v))), "%04x", h)
			continue
		}
		require.Equal(t, math.Float64bits(want), math.Float64bits(float64(v)), "%04x", h)
		require.Equal(t, h, toF16(v))
	}
}

// What is stored is the nearest number that there is, the one with an even last bit between two.
func TestF16RoundsToNearestEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
		if v != v {
			return
		}
		h := toF16(v)
		require.Equal(t, math.Signbit(float64(v)), h&0x8000 != 0)
		if math.Abs(float64(v)) >= 65520 {
			require.Equal(t, uint16(0x7c00), h&0x7fff)
			return
		}
		off := math.Abs(slowF16(h) - float64(v))
		for _, other := range []uint16{h - 1, h + 1} {
			if o := slowF16(other); !math.IsNaN(o) && !math.IsInf(o, 0) && other&0x8000 == h&0x8000 {
				away := math.Abs(o - float64(v))
				require.True(t, off < away || off == away && h&1 == 0, "%g stored as %04x", v, h)
			}
		}
	})
}
