package assembly

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// eval.show is how many versions lie between the rollouts that are printed. Which versions are scored at all depends on how
// fast a run is.
func TestRolloutsAreShownEverySoManyVersions(t *testing.T) {
	t.Parallel()
	for every, want := range map[int64][]int64{0: nil, 1: {0, 1, 2, 5, 6, 9}, 2: {0, 2, 5, 9}, 5: {0, 5}, 100: {0}} {
		var got []int64
		shown := int64(-1)
		for _, version := range []int64{0, 1, 2, 5, 6, 9} {
			if showsRollout(every, shown, version) {
				got, shown = append(got, version), version
			}
		}
		require.Equal(t, want, got, "every %d", every)
	}
}
