package delta

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "base")
		width := rapid.SampledFrom([]int{2, 4}).Draw(t, "width")
		next := slices.Clone(base)
		if len(next) > 0 {
			for range rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 600)).Draw(t, "changes") {
				next[rapid.IntRange(0, len(next)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
			}
		}
		was := slices.Clone(base)
		encoded, err := Encode(base, next, width)
		require.NoError(t, err)
		got, err := Decode(base, encoded)
		require.NoError(t, err)
		require.True(t, slices.Equal(next, got))
		require.Equal(t, was, base, "the base is left as it was")
	})
}

func TestEncodeRefuses(t *testing.T) {
	_, err := Encode(make([]byte, 4), make([]byte, 8), 2)
	require.ErrorIs(t, err, ErrSize)
	_, err = Encode(make([]byte, 4), make([]byte, 4), 3)
	require.ErrorIs(t, err, ErrSize)
}

func TestDecodeRefuses(t *testing.T) {
	base := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
	next := []byte{1, 2, 3, 4, 5, 7, 7, 8, 0}
	encoded, err := Encode(base, next, 2)
	require.NoError(t, err)
	for n := range encoded {
		_, err := Decode(base, encoded[:n])
		require.ErrorIs(t, err, ErrCorrupt, "cut at %d", n)
	}
	_, err = Decode(base, append(slices.Clone(encoded), 0))
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = Decode(base[:8], encoded)
	require.ErrorIs(t, err, ErrCorrupt)
}

func FuzzDecode(f *testing.F) {
	base := make([]byte, 64)
	for _, next := range [][]byte{make([]byte, 64), slices.Repeat([]byte{1, 0, 0, 0}, 16), slices.Repeat([]byte{7}, 64)} {
		for _, width := range []int{2, 4} {
			encoded, err := Encode(base, next, width)
			require.NoError(f, err)
			f.Add(encoded)
		}
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		if next, err := Decode(base, encoded); err == nil {
			require.Len(t, next, len(base))
		} else {
			require.ErrorIs(t, err, ErrCorrupt)
		}
	})
}

// bfloat16Step rounds float32 weights to bfloat16 before and after an update of the size that Adam makes.
func bfloat16Step(n int, rate float64) (base, next []byte) {
	r := rand.New(rand.NewPCG(3, 4))
	round := func(v float64) uint16 {
		b := math.Float32bits(float32(v))
		return uint16((b + 0x7fff + b>>16&1) >> 16)
	}
	for range n {
		w := r.NormFloat64() * 0.02
		base = binary.LittleEndian.AppendUint16(base, round(w))
		next = binary.LittleEndian.AppendUint16(next, round(w+rate*r.NormFloat64()))
	}
	return base, next
}

// BenchmarkDelta reports how much of a whole snapshot a delta is; the weights are made up, so the figure that
// counts is that of a real run (weir bench weights).
func BenchmarkDelta(b *testing.B) {
	for _, rate := range []float64{1e-6, 1e-5, 1e-4, 1e-3} {
		base, next := bfloat16Step(1<<20, rate)
		encoded, err := Encode(base, next, 2)
		require.NoError(b, err)
		b.Run(fmt.Sprintf("encode/%g", rate), func(b *testing.B) {
			b.SetBytes(int64(len(next)))
			for b.Loop() {
				_, _ = Encode(base, next, 2)
			}
			b.ReportMetric(100*float64(len(encoded))/float64(len(next)), "%size")
		})
		b.Run(fmt.Sprintf("decode/%g", rate), func(b *testing.B) {
			b.SetBytes(int64(len(next)))
			for b.Loop() {
				_, _ = Decode(base, encoded)
			}
		})
	}
}

// Files of more than a block are encoded block by block, and the last block may be any length.
func TestFilesOfSeveralBlocks(t *testing.T) {
	for _, size := range []int{blockBytes, blockBytes + 1, 2*blockBytes + 1002, 3 * blockBytes} {
		base := make([]byte, size)
		r := rand.New(rand.NewPCG(5, uint64(size)))
		for i := 0; i+8 <= size; i += 8 {
			binary.LittleEndian.PutUint64(base[i:], r.Uint64())
		}
		next := slices.Clone(base)
		for range 1000 {
			next[r.IntN(size)]++
		}
		encoded, err := Encode(base, next, 2)
		require.NoError(t, err)
		require.Less(t, len(encoded), 10_000)
		got, err := Decode(base, encoded)
		require.NoError(t, err)
		require.True(t, slices.Equal(next, got))
		if size == blockBytes {
			require.EqualValues(t, format, encoded[0], "what fits a block is not in blocks")
			continue
		}
		require.EqualValues(t, inBlocks, encoded[0])
		for _, n := range []int{1, 3, 5, 9, len(encoded) / 2, len(encoded) - 1} {
			_, err := Decode(base, encoded[:n])
			require.ErrorIs(t, err, ErrCorrupt, "cut at %d", n)
		}
		_, err = Decode(base, append(slices.Clone(encoded), 0))
		require.ErrorIs(t, err, ErrCorrupt)
		_, err = Decode(base[1:], encoded)
		require.ErrorIs(t, err, ErrCorrupt)
	}
}

// A delta of a large file in one piece would be held whole in memory, and no publisher makes any.
func TestADeltaOfALargeFileInOnePieceIsRefused(t *testing.T) {
	base, next := make([]byte, 2*blockBytes), make([]byte, 2*blockBytes)
	next[blockBytes+7], next[3] = 9, 1
	enc, err := newEncoder()
	require.NoError(t, err)
	defer enc.closeEncoder()
	_, err = Decode(base, enc.encodeBlock(nil, base, next, 4))
	require.ErrorIs(t, err, ErrCorrupt)
}

// The bytes of a delta are the same as ever: two publishers of one version store one blob.
func TestTheBytesOfADeltaStay(t *testing.T) {
	base, next := bfloat16Step(1<<14, 1e-5)
	encoded, err := Encode(base, next, 2)
	require.NoError(t, err)
	require.Equal(t, golden, fmt.Sprintf("%x", sha256.Sum256(encoded)))
}

// golden is the hash of that delta, with zstd of klauspost/compress 1.20.3.
const golden = "892dd58e0d774f11d8e9965e574a7417c61ed067f06e8b85dc4da0dfaf5c4ce4"
