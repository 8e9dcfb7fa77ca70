package advantage

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/perturb"
)

// By hand: an action, two tokens of a tool, an action that is rewarded with 8; the critic's values are 1, 2, 4, 3.
//
// Over the actions, with lambda 0.5: A_3 = 8 - 3 = 5, A_0 = (3 - 1) + 0.5 * 5 = 4.5.
//
// Over all tokens: A_3 = 5, A_2 = (3 - 4) + 2.5 = 1.5, A_1 = (4 - 2) + 0.75 = 2.75, A_0 = (2 - 1) + 1.375 = 2.375.
func TestGAEOfATrajectoryWithATool(t *testing.T) {
	t.Parallel()
	b := &Batch{Offsets: []int{0, 4}, Mask: []uint8{1, 0, 0, 1}, Rewards: []float64{0, 0, 0, 8}, Values: []float64{1, 2, 4, 3}}
	all := *b
	all.Mask = []uint8{1, 1, 1, 1}
	o := defaultOptions()
	o.Whiten, o.Lambda = false, 0.5
	masked, over := mustEstimate(t, "gae", o, b), mustEstimate(t, "gae", o, &all)
	require.Equal(t, []float64{4.5, 0, 0, 5}, masked.Advantages)
	require.Equal(t, []float64{5.5, 0, 0, 8}, masked.Returns)
	require.Equal(t, []float64{2.375, 2.75, 1.5, 5}, over.Advantages)
	require.Equal(t, []float64{3.375, 4.75, 5.5, 8}, over.Returns)

	o.Lambda = 1 // the values between cancel out: the actions have the same advantages, and the critic more targets
	masked, over = mustEstimate(t, "gae", o, b), mustEstimate(t, "gae", o, &all)
	require.Equal(t, []float64{7, 0, 0, 5}, masked.Advantages)
	require.Equal(t, []float64{7, 6, 4, 5}, over.Advantages)
	require.Equal(t, []float64{8, 8, 8, 8}, over.Returns)

	o.Gamma = 0.5 // REINFORCE++: what a tool wrote takes time
	require.Equal(t, []float64{4, 0, 0, 8}, mustEstimate(t, "reinforce_pp", o, b).Advantages)
	require.Equal(t, []float64{1, 2, 4, 8}, mustEstimate(t, "reinforce_pp", o, &all).Advantages)
}

// The fact is true of every estimator under each of its keys: OverAnyTokens is set where a sampled token has the same advantage with the
// output of tools in the mask, and not set where some sampled token has another. Estimators that tell turns apart are never asked; those
// that read values may have the same advantages, but then the critic has other targets.
func TestEstimatorsOverAnyTokens(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	var masked, over []*Batch
	for range 3 {
		b := everyCase(random, false, 4, 3, 2)
		for i := range b.Rows() { // a run leaves rows without a sampled token out, and rewards sampled tokens alone
			b.Mask[b.Offsets[i+1]-1] = 1
		}
		for k, m := range b.Mask {
			b.Rewards[k] = float64(m) * (b.Rewards[k] + 0.5)
		}
		all := *b
		all.Mask = slices.Repeat([]uint8{1}, len(b.Mask))
		for _, lo := range b.Offsets[:b.Rows()] {
			all.Mask[lo] = b.Mask[lo]
		}
		masked, over = append(masked, b), append(over, &all)
	}
	asked := map[bool]int{}
	for _, name := range Names() {
		keys := Keys(name)
		check := func(what string) {
			facts := FactsOf(name, keys)
			e, err := New(name, keys)
			if err != nil || facts.ByTurns {
				return
			}
			same := true
			for k, b := range masked {
				var got, want Result
				for batch, out := range map[*Batch]*Result{b: &want, over[k]: &got} {
					if s, ok := e.(Stateful); ok {
						require.NoError(t, s.Restore(nil))
					}
					require.NoError(t, e.Estimate(batch, out))
				}
				for at, m := range b.Mask {
					same = same && (m == 0 || scaledDistance(want.Advantages[at], got.Advantages[at]) < 1e-9)
				}
				if slices.Contains(facts.Requires, "Values") {
					same = same && slices.Equal(want.Returns, got.Returns)
				}
			}
			require.Equal(t, facts.OverAnyTokens, same, "%s, %s", name, what)
			asked[same]++
		}
		check("by default")
		for _, key := range perturb.Keys(reflect.ValueOf(keys).Elem().Interface()) {
			perturb.Each(keys, key, []string{SingleReward, ByGAE, UnitTurn, UnitSegment}, func() {
				check(fmt.Sprintf("another %s: %+v", key, keys))
			})
		}
	}
	require.Greater(t, asked[true], 20)
	require.Greater(t, asked[false], 20)
}

// scaledDistance is the difference in units of the larger, or of 1.
func scaledDistance(a, b float64) float64 {
	return max(a-b, b-a) / max(1, a, -a, b, -b)
}
