package schemas

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The first numbers of SplitMix64 from state 0, as its authors' code gives them.
func TestMixSeedIsSplitMix64(t *testing.T) {
	t.Parallel()
	state := uint64(0)
	for _, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f, 0xf88bb8a8724c81ec} {
		require.Equal(t, want, MixSeed(state))
		state += SeedStep
	}
}

func TestMixSeedSpreadsEachBit(t *testing.T) {
	t.Parallel()
	changed, drawn := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		z := rapid.Uint64().Draw(t, "z")
		bit := rapid.IntRange(0, 63).Draw(t, "bit")
		n := bits.OnesCount64(MixSeed(z) ^ MixSeed(z^1<<bit))
		require.Positive(t, n)
		changed, drawn = changed+n, drawn+1
	})
	require.InDelta(t, 32, float64(changed)/float64(drawn), 6)
}

func TestContentHashIsHexSHA256(t *testing.T) {
	t.Parallel()
	require.Equal(t, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", ContentHash(nil))
}
