package advantage

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The advantages of three episodes, computed by hand from the paper's formula (arXiv 2410.01679, section 4: A = r + V(s') - V(s), with V
// the mean return of the episodes that go on from a state, and V = 0 behind the last): a chain of reasoning of three steps, of which the
// second spoils the answer; an episode that was right from its first state on; and one that is paid for a turn and cut off in two contexts.
func TestVinePPOByHand(t *testing.T) {
	t.Parallel()
	b := &Batch{
		//          _  a  a  _  b  _  c     _  a  a     _  a  _  |  _  b
		Offsets:     []int{0, 7, 10, 13, 15},
		Mask:        []uint8{0, 1, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1},
		Rewards:     []float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0.25, 0, 0, -0.5},
		Trajectory:  []int{4, 5, 6, 6},
		Step:        []int{0, 0, 0, 1},
		StateValues: []float64{9, 5. / 9, 5. / 9, 9, 8. / 9, 9, 1. / 9, 9, 1, 1, 9, 0.5, 9, 9, 0.125},
		Bootstrap:   []float64{7, 7, 7, 7}, // a critic's, which has no part in it
	}
	out := mustEstimate(t, "vineppo", defaultOptions(), b)
	require.InDeltaSlice(t, []float64{
		0, 3. / 9, 3. / 9, 0, -7. / 9, 0, -1. / 9, // 8/9 - 5/9, 1/9 - 8/9, 0 - 1/9
		0, 0, 0, // 1 + 0 - 1
		0, -0.125, 0, 0, -0.625, // 0.25 + 0.125 - 0.5, -0.5 + 0 - 0.125
	}, out.Advantages, 1e-12)

	b.StateValues[4], b.StateValues[8], b.StateValues[14] = math.NaN(), math.NaN(), math.NaN()
	out = mustEstimate(t, "vineppo", defaultOptions(), b)
	require.InDeltaSlice(t, []float64{
		0, -4. / 9, -4. / 9, 0, -4. / 9, 0, -1. / 9, // two turns as a single turn: 1/9 - 5/9
		0, 1, 1, // no value at all: the return
		0, -0.75, 0, 0, -0.75, // 0.25 - 0.5 - 0.5, over two contexts
	}, out.Advantages, 1e-12)
}

// A naive model that goes from turn to turn, some of which begin in a state without a value, gives the same advantages, whatever lies
// between turns and however rows are mixed; and the advantages of an episode sum up to its return less the value of its first state.
func TestPropertyVinePPOAgainstANaiveModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		b := &Batch{Offsets: []int{0}}
		want := []float64{}
		rows := rapid.IntRange(1, 4).Draw(r, "rows")
		type turn struct {
			tokens     []int
			reward, at float64
		}
		returns := map[int]float64{}
		episodes := map[int][]turn{}
		for row := range rows {
			episode := rapid.IntRange(0, 1).Draw(r, "episode")
			b.Trajectory, b.Step = append(b.Trajectory, episode), append(b.Step, row)
			acts := false
			for range rapid.IntRange(1, 8).Draw(r, "tokens") {
				on := rapid.Bool().Draw(r, "acts")
				value := rapid.OneOf(rapid.Float64Range(-2, 2), rapid.Just(math.NaN())).Draw(r, "value")
				reward := rapid.Float64Range(-1, 1).Draw(r, "reward")
				at := len(b.Mask)
				b.Mask, b.Rewards = append(b.Mask, 0), append(b.Rewards, 0)
				b.StateValues, want = append(b.StateValues, value), append(want, 0)
				if on {
					b.Mask[at], b.Rewards[at] = 1, reward
					switch {
					case acts:
					case !math.IsNaN(value):
						episodes[episode] = append(episodes[episode], turn{at: value})
					case len(episodes[episode]) == 0:
						episodes[episode] = append(episodes[episode], turn{})
					}
					last := &episodes[episode][len(episodes[episode])-1]
					last.tokens, last.reward = append(last.tokens, at), last.reward+reward
					returns[episode] += reward
				}
				acts = on
			}
			b.Offsets = append(b.Offsets, len(b.Mask))
		}
		for episode, turns := range episodes {
			sum := 0.0
			for i, played := range turns {
				next := 0.0
				if i+1 < len(turns) {
					next = turns[i+1].at
				}
				for _, token := range played.tokens {
					want[token] = played.reward + next - played.at
				}
				sum += played.reward + next - played.at
			}
			require.InDelta(r, returns[episode]-turns[0].at, sum, 1e-9)
		}
		require.InDeltaSlice(r, want, mustEstimate(t, "vineppo", defaultOptions(), b).Advantages, 1e-9)
	})
}
