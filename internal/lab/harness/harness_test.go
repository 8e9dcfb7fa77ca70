package harness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	require.Equal(t, Spread{Median: 2, Min: 1, Max: 9}, SpreadOf([]float64{9, 1, 2}))
	require.Equal(t, Spread{Median: 3, Min: 1, Max: 9}, SpreadOf([]float64{9, 1, 2, 4}))
}

// The trajectory that is moved is a sound one, of the size that was asked for.
func TestTrajectory(t *testing.T) {
	t.Parallel()
	for _, size := range []int{4096, 128_000, 1 << 20} {
		traj := Trajectory("r", size)
		require.NoError(t, traj.Validate())
		data, err := schemas.Marshal(traj)
		require.NoError(t, err)
		require.InDelta(t, size, len(data), 600)
	}
}

func TestPercentilesAreOfTheNearestRank(t *testing.T) {
	t.Parallel()
	require.Zero(t, PercentilesOf(nil))
	var took []time.Duration
	for i := range 200 {
		took = append(took, time.Duration(200-i)*time.Millisecond)
	}
	require.Equal(t, Percentiles{P50: 100, P99: 198}, PercentilesOf(took))
	require.Equal(t, Percentiles{P50: 3, P99: 3}, PercentilesOf([]time.Duration{3 * time.Millisecond}))
}
