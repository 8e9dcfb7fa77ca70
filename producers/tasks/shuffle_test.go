package tasks

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPermuted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Uint64Range(1, 300).Draw(rt, "n")
		key := rapid.Uint64().Draw(rt, "key")
		seen := map[uint64]bool{}
		for i := range n {
			at := permuteIndex(i, n, key)
			require.Less(rt, at, n)
			seen[at] = true
		}
		require.Len(rt, seen, int(n))
	})
}
