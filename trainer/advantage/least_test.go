package advantage

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Defect N16: groups too small for an estimator get advantage 0 throughout, which no run learns from; larger ones do not.
func TestLearnsFromIsTheLeastGroupWithAnAdvantage(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		for _, single := range []string{SingleZero, SingleReward} {
			o := defaultOptions()
			o.Single = single
			learns := func(size int) bool {
				e, err := newOf(name, o)
				require.NoError(t, err)
				var out Result
				b := everyCase(rand.New(rand.NewPCG(5, 6)), false, size, size, size, size)
				b.Agent, b.Episode = nil, nil // as in a run
				for i := range b.Rewards {
					b.Rewards[i] += 2 // max_rl learns from groups of a mean above 0
				}
				if err := e.Estimate(b, &out); err != nil {
					return false
				}
				for _, a := range out.Advantages {
					if a != 0 {
						return true
					}
				}
				return false
			}
			least := 1
			for !learns(least) {
				least++
				require.Less(t, least, 4, name)
			}
			require.Equal(t, least, FactsOf(name, o.keys(name)).LearnsFrom, "%s %s", name, single)
		}
	}
}
