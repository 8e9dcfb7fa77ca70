package parts

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/advantage"
)

// [advantage]
// aboveMedian takes the median of a group's rewards as what was to be expected, so that one lucky sample does not make all
// others bad.
var aboveMedian = advantage.PerGroup("above_median", func(rewards, advantages []float64) {
	sorted := slices.Sorted(slices.Values(rewards))
	median := (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
	for i, r := range rewards {
		advantages[i] = r - median
	}
})

// [test] The example above works.
func TestAnAdvantageOfYourOwn(t *testing.T) {
	t.Parallel()
	estimator, err := advantage.New("above_median", nil, aboveMedian)
	require.NoError(t, err)
	var out advantage.Result
	require.NoError(t, estimator.Estimate(&advantage.Batch{
		Offsets: []int{0, 1, 2, 4}, Mask: []uint8{1, 1, 0, 1}, Rewards: []float64{0.25, 0, 0, 9}, Group: []int{0, 0, 0},
	}, &out))
	require.Equal(t, []float64{0, -0.25, 0, 8.75}, out.Advantages, "of each token; 0 where the policy sampled none")
}
