package schemas

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPortablePackingIsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ints := rapid.SliceOf(rapid.Int32()).Draw(t, "ints")
		floats := rapid.SliceOf(rapid.Float32()).Draw(t, "floats")
		for _, little := range []bool{nativeLittle(), false} {
			packed := appendWords(nil, ints, little)
			require.Equal(t, appendWords(nil, ints, false), packed)
			require.Len(t, readWords[int32](nil, packed, little), len(ints))
			require.True(t, slices.Equal(ints, readWords(make([]int32, 3, 4), packed, little)))
			require.True(t, slices.Equal(floats, readWords[float32](nil, appendWords(nil, floats, little), little)))
		}
	})
}

func TestMoveCopiesAllAndNoMore(t *testing.T) {
	for _, n := range []int{0, 1, block - 1, block, block + 1, 3*block + 7} {
		for from := range 9 {
			src, dst := make([]byte, from+n), make([]byte, n+1)
			for i := range src {
				src[i] = byte(i%251 + 1)
			}
			moveBytes(dst[:n], src[from:])
			require.Equal(t, append(slices.Clone(src[from:]), 0), dst)
			require.Equal(t, append([]byte{7}, src[from:]...), appendBytes([]byte{7}, src[from:]))
		}
	}
}

func TestRunsAgainstOneValueAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var values []int32
		var pairs []byte
		for range rapid.IntRange(0, 6).Draw(t, "runs") {
			v := rapid.Int32Range(-1, 1).Draw(t, "value")
			n := rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 1500)).Draw(t, "length")
			values = append(values, slices.Repeat([]int32{v}, n)...)
		}
		for i := 0; i < len(values); {
			j := i
			for j < len(values) && values[j] == values[i] {
				j++
			}
			pairs = appendWords(pairs, []int32{int32(j - i), values[i]}, false)
			i = j
		}
		packed := appendRuns(nil, values)
		require.Equal(t, pairs, packed)
		got, fault := readRuns(nil, packed, len(values))
		require.Empty(t, fault)
		require.True(t, slices.Equal(values, got))
		for _, wrong := range []int{len(values) - 1, len(values) + 1} {
			_, fault = readRuns(nil, packed, wrong)
			require.NotEmpty(t, fault)
		}
	})
}
