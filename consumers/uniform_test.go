package consumers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUniformIsUniform(t *testing.T) {
	t.Parallel()
	// Seeds that follow one another and positions that do must be independent of each other: chi-squared over a
	// 16 x 16 grid of pairs has 255 degrees of freedom, standard deviation 22.6.
	for _, next := range []struct {
		name           string
		seed, position int
	}{{"next seed", 1, 0}, {"next position", 0, 1}, {"both", 1, -1}} {
		var grid [16][16]float64
		const n = 1 << 16
		for i := range n {
			seed, position := i>>8, i&255+1
			u, v := uniformAt(uint64(seed), position), uniformAt(uint64(seed+next.seed), position+next.position)
			require.True(t, u >= 0 && u < 1)
			grid[int(u*16)][int(v*16)]++
		}
		var chi2 float64
		for _, row := range grid {
			for _, x := range row {
				chi2 += (x - n/256.) * (x - n/256.) / (n / 256.)
			}
		}
		require.InDelta(t, 255, chi2, 120, next.name)
	}
}
