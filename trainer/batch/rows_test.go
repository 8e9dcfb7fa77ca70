package batch

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

func segment(temperature float32, mask ...uint8) schemas.Segment {
	s := schemas.Segment{Temperature: temperature, ActionMask: mask}
	for i, m := range mask {
		s.Tokens = append(s.Tokens, int32(10+i))
		s.Logprobs = append(s.Logprobs, -float32(m))
		s.Versions = append(s.Versions, int32(m)-1)
	}
	return s
}

func TestRowsPlaceRewards(t *testing.T) {
	t.Parallel()
	tr := &schemas.Trajectory{
		Reward:   2,
		Segments: []schemas.Segment{segment(1, 0, 1, 1, 0, 1), segment(1, 0, 0), segment(0.5, 0, 1, 0)},
		Turns: []schemas.Turn{
			{Segment: 0, Start: 1, End: 3, ProcessReward: 0.25, Calls: []schemas.ToolCall{{Tool: "search", Duration: 1500 * time.Millisecond}}},
			{Segment: 0, Start: 4, End: 5},
			{Segment: 2, Start: 1, End: 2, ProcessReward: 0.375, Reward: 0.125},
		},
	}
	r := NewRows(&Batch{Groups: []Taken{
		{Members: []Member{{Trajectory: trajectory(0, 0, 0, 1, 7, 3), Reward: 7}}},
		{Members: []Member{{Trajectory: tr, Reward: 2}}},
	}})
	require.Equal(t, []int{0, 2, 7, 10}, r.Offsets, "the segment without a sampled token is left out")
	require.Equal(t, []float64{0, 7, 0, 0, 0.25, 0, 0, 0, 2.5, 0}, r.Rewards)
	require.Equal(t, []float64{0, 0, 0, 1.5, 1.5, 0, 0, 0, 0, 0}, r.Seconds)
	require.Equal(t, []int{0, 1, 1}, r.Group)
	require.Equal(t, []int{0, 1, 1}, r.Trajectory)
	require.Equal(t, []int{0, 0, 1}, r.Step)
	require.Equal(t, []float32{1, 1, 0.5}, r.Temperature)
	require.Equal(t, 2, r.Trajectories)

	b := r.GPU([]int{2, 0})
	require.Equal(t, []int{0, 3, 5}, b.Offsets)
	require.Equal(t, []int32{10, 11, 12, 1, 2}, b.Tokens)
	require.Equal(t, []float32{0.5, 1}, b.Temperature)
	back := make([]float64, len(r.Tokens))
	Scatter(r, []int{2, 0}, Gather(r, []int{2, 0}, r.Rewards), back)
	require.Equal(t, []float64{0, 7, 0, 0, 0, 0, 0, 0, 2.5, 0}, back)
}

// The first row of a batch begins at token 0, which is a place like any other.
func TestTheFirstRowOfABatchHasItsProcessRewardAndItsSecondsWhereTheyBelong(t *testing.T) {
	t.Parallel()
	r := NewRows(&Batch{Groups: []Taken{{Members: []Member{{Reward: 1, Trajectory: &schemas.Trajectory{
		Segments: []schemas.Segment{segment(1, 0, 1, 0, 1)},
		Turns:    []schemas.Turn{{Segment: 0, Start: 1, End: 2, ProcessReward: 0.25, Calls: []schemas.ToolCall{{Tool: "search", Duration: time.Second}}}, {Segment: 0, Start: 3, End: 4}},
	}}}}}})
	require.Equal(t, []float64{0, 0.25, 0, 1}, r.Rewards)
	require.Equal(t, []float64{0, 1, 0, 0}, r.Seconds)
}

func TestWithoutMasksEveryTokenButTheFirstOfARowIsTrainedOn(t *testing.T) {
	t.Parallel()
	segments := []schemas.Segment{segment(1, 0, 0, 1, 0), segment(1, 0, 0), segment(1, 0, 1, 1), segment(1, 0, 0, 0, 1)}
	for i := range segments {
		segments[i].Tokens[0] = int32(i) // each context begins in its own way
	}
	r := NewRows(&Batch{Groups: []Taken{{Members: []Member{{Trajectory: &schemas.Trajectory{Segments: segments}}}}}})
	mask := slices.Clone(r.Mask)
	unmasked, tools := r.Unmasked()
	require.Equal(t, []int{1, 3, 8, 9}, tools)
	require.Equal(t, []uint8{0, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1}, unmasked.Mask)
	require.Equal(t, mask, r.Mask, "the rows themselves stay")
	_, tools = unmasked.Unmasked()
	require.Empty(t, tools)
}

// Without masks each token of a trajectory is trained on once: a context that begins with what the context before it has is trained on
// behind that, and wherever it was sampled; a context of another agent or trajectory repeats nothing.
//
// Finding 14.6: the history was credited again in each context that began with it.
func TestWithoutMasksTheHistoryOfAContextIsTrainedOnOnce(t *testing.T) {
	t.Parallel()
	segments := func() []schemas.Segment {
		return []schemas.Segment{
			segment(1, 0, 0, 1, 0), segment(1, 0, 0, 0, 0, 0, 1), // the history, then something new
			segment(1, 0, 0, 1, 0), // the same again, sampled anew
		}
	}
	want := []uint8{0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0}
	r := NewRows(&Batch{Groups: []Taken{{Members: []Member{
		{Trajectory: &schemas.Trajectory{Segments: segments()}}, {Trajectory: &schemas.Trajectory{Segments: segments()}},
	}}}})
	unmasked, tools := r.Unmasked()
	require.Equal(t, slices.Concat(want, want), unmasked.Mask)
	require.Equal(t, []int{1, 3, 8, 15, 17, 22}, tools)

	r.Part = []int{0, 1, 0, 2, 3, 2} // the second context of each is another agent's
	unmasked, _ = r.Unmasked()
	want = []uint8{0, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 0}
	require.Equal(t, slices.Concat(want, want), unmasked.Mask)
}

// Where advantages are estimated over other tokens than the policy is trained on, an engine is asked for both, and a trajectory that is
// silenced has neither.
func TestRowsCreditedOverOtherTokens(t *testing.T) {
	t.Parallel()
	r := NewRows(&Batch{Groups: []Taken{{Members: []Member{
		{Trajectory: &schemas.Trajectory{Segments: []schemas.Segment{segment(1, 0, 1, 0, 1)}}},
		{Trajectory: &schemas.Trajectory{Segments: []schemas.Segment{segment(1, 0, 0, 1)}}},
	}}}})
	require.Equal(t, r.Mask, r.CreditMask())
	unmasked, _ := r.Unmasked()
	for what, of := range map[string]*Rows{"credit": r.CreditedOver(unmasked.Mask), "loss": unmasked.CreditedOver(r.Mask)} {
		require.Equal(t, []uint8{0, 1, 1, 1, 0, 1, 1}, of.GPU(of.All()).Mask, what)
		require.Equal(t, []uint8{0, 1, 1}, of.GPU([]int{1}).Mask, what)
		mask, credit := slices.Clone(of.Mask), slices.Clone(of.CreditMask())
		require.NotEqual(t, mask, credit, what)
		silenced := of.Silenced(map[int]bool{0: true})
		require.Equal(t, append(make([]uint8, 4), mask[4:]...), silenced.Mask, what)
		require.Equal(t, append(make([]uint8, 4), credit[4:]...), silenced.CreditMask(), what)
		require.Equal(t, mask, of.Mask, what)
		require.Equal(t, credit, of.CreditMask(), what)
	}
	require.Equal(t, []uint8{0, 1, 0, 1, 0, 0, 1}, r.GPU(r.All()).Mask)
	require.Nil(t, r.Silenced(nil).Credit)
}

// What a turn of a segment that is left out earned is given at the last token that was sampled.
func TestRewardsOfSegmentsThatAreLeftOutAreNotLost(t *testing.T) {
	t.Parallel()
	tr := &schemas.Trajectory{
		Segments: []schemas.Segment{segment(1, 0, 0), segment(1, 0, 1), segment(1, 0, 0, 0)},
		Turns: []schemas.Turn{
			{Segment: 0, Start: 0, End: 2, ProcessReward: 0.25, Calls: []schemas.ToolCall{{Tool: "search", Duration: time.Second}}},
			{Segment: 1, ProcessReward: 4},
			{Segment: 2, Start: 1, End: 2, ProcessReward: 0.5, Calls: []schemas.ToolCall{{Tool: "search", Duration: time.Second}}},
		},
	}
	r := NewRows(&Batch{Groups: []Taken{{Members: []Member{{Trajectory: trajectory(0, 0, 0, 1, 7, 3)}, {Trajectory: tr, Reward: 1}}}}})
	require.Equal(t, []float64{0, 0, 0, 5.75}, r.Rewards)
	require.Equal(t, []float64{0, 0, 0, 0}, r.Seconds)
	r = NewRows(&Batch{Groups: []Taken{{Members: []Member{{Trajectory: &schemas.Trajectory{Segments: []schemas.Segment{segment(1, 0, 0)}}, Reward: 1}}}}})
	require.Zero(t, r.Len(), "nothing was sampled, and nothing can be rewarded")
}

func TestStalenessIsSplitAtTheNewestToken(t *testing.T) {
	t.Parallel()
	m := NewMember(schemas.Delivery{Trajectory: trajectory(0, 0, 0, 1, 1, 2, 5, 3)}, nil)
	flight, queue := m.Staleness(9)
	require.Equal(t, []int64{3, 4}, []int64{flight, queue})
}

func TestSilencedTrajectoriesLeaveTheLoss(t *testing.T) {
	t.Parallel()
	var members []Member
	for range 5 {
		members = append(members, Member{Trajectory: &schemas.Trajectory{Segments: []schemas.Segment{segment(1, 0, 1), segment(1, 0, 1, 1)}}})
	}
	r := NewRows(&Batch{Groups: []Taken{{Members: members}}})
	mask := slices.Clone(r.Mask)
	some := r.Silenced(map[int]bool{0: true, 3: true})
	require.Equal(t, mask, r.Mask, "the rows themselves stay")
	var rows []int
	for _, part := range some.Minibatches(2, rand.New(rand.NewPCG(1, 2))) {
		rows = append(rows, part...)
	}
	require.ElementsMatch(t, []int{2, 3, 4, 5, 8, 9}, rows)
	require.Equal(t, 9, some.ActionTokens(some.All()))
	none := some.Silenced(map[int]bool{1: true, 2: true, 4: true})
	require.Empty(t, none.Minibatches(2, rand.New(rand.NewPCG(1, 2))))
}

func TestMinibatchesDealTrajectoriesEvenlyAndWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var members []Member
		for range rapid.IntRange(1, 20).Draw(t, "trajectories") {
			tr := &schemas.Trajectory{}
			for range rapid.IntRange(1, 3).Draw(t, "segments") {
				tr.Segments = append(tr.Segments, segment(1, 0, 1))
			}
			members = append(members, Member{Trajectory: tr})
		}
		r := NewRows(&Batch{Groups: []Taken{{Members: members}}})
		n := rapid.IntRange(1, 8).Draw(t, "minibatches")
		seed := rapid.Uint64().Draw(t, "seed")
		parts := r.Minibatches(n, rand.New(rand.NewPCG(seed, 0)))
		require.Equal(t, parts, r.Minibatches(n, rand.New(rand.NewPCG(seed, 0))))
		require.Len(t, parts, min(n, len(members)))
		var all, sizes []int
		home := map[int]int{}
		for p, rows := range parts {
			require.True(t, slices.IsSorted(rows))
			all = append(all, rows...)
			whole := map[int]bool{}
			for _, row := range rows {
				whole[r.Trajectory[row]] = true
			}
			for tr := range whole {
				require.NotContains(t, home, tr, "a trajectory is in one minibatch")
				home[tr] = p
			}
			sizes = append(sizes, len(whole))
		}
		slices.Sort(all)
		require.Equal(t, r.All(), all)
		require.LessOrEqual(t, slices.Max(sizes)-slices.Min(sizes), 1)
	})
}

func TestPack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(1, 30), 1, 40).Draw(t, "lengths")
		budget := rapid.IntRange(1, 60).Draw(t, "budget")
		rows := make([]int, len(lengths))
		total := 0
		for i, n := range lengths {
			rows[i] = i
			total += n
		}
		length := func(row int) int { return lengths[row] }
		bins := Pack(rows, length, budget)
		require.Equal(t, bins, Pack(rows, length, budget))
		var all []int
		sums := make([]int, len(bins))
		for i, bin := range bins {
			for _, row := range bin {
				sums[i] += lengths[row]
			}
			require.True(t, sums[i] <= budget || len(bin) == 1, "over budget only where a row alone is")
			all = append(all, bin...)
		}
		slices.Sort(all)
		require.Equal(t, rows, all)
		half := 0
		for _, s := range sums {
			if 2*s <= budget {
				half++
			}
		}
		require.LessOrEqual(t, half, 1, "first fit leaves at most one bin half empty")
	})
	for budget, want := range map[int][][]int{0: {{0, 1, 2}}, 1: {{0}, {1}, {2}}, 9: {{0}, {1}, {2}}, 10: {{0, 1}, {2}}, 15: {{0, 1, 2}}} {
		require.Equal(t, want, Pack([]int{0, 1, 2}, func(int) int { return 5 }, budget), "%d", budget)
	}
}

func TestChecker(t *testing.T) {
	t.Parallel()
	check := Checker(20, 8)
	for _, c := range []struct {
		name  string
		spoil func(*schemas.Trajectory)
		want  string
	}{
		{"sound", func(*schemas.Trajectory) {}, ""},
		{"token beyond the vocabulary", func(t *schemas.Trajectory) { t.Segments[0].Tokens[1] = 20 }, "vocabulary"},
		{"negative token", func(t *schemas.Trajectory) { t.Segments[0].Tokens[1] = -1 }, "vocabulary"},
		{"short mask", func(t *schemas.Trajectory) { t.Segments[0].ActionMask = t.Segments[0].ActionMask[:2] }, "mask"},
		{"mask of two", func(t *schemas.Trajectory) { t.Segments[0].ActionMask[1] = 2 }, "mask is 2"},
		{"first token sampled", func(t *schemas.Trajectory) { t.Segments[0].ActionMask[0] = 1 }, "first token"},
		{"positive log-probability", func(t *schemas.Trajectory) { t.Segments[0].Logprobs[1] = 1 }, "log-probability"},
		{"no version", func(t *schemas.Trajectory) { t.Segments[0].Versions[1] = -1 }, "no policy version"},
		{"too long", func(t *schemas.Trajectory) { t.Segments[0] = segment(1, 0, 1, 1, 1, 1, 1, 1, 1, 1) }, "the model takes 8"},
		{"turn beyond", func(t *schemas.Trajectory) { t.Turns = []schemas.Turn{{Start: 1, End: 9}} }, "turn 0"},
		{"turns next to each other", func(t *schemas.Trajectory) {
			t.Turns = []schemas.Turn{{End: 1}, {Start: 1, End: 3}, {Start: 3, End: 3}}
		}, ""},
		{"turn that ends before it begins", func(t *schemas.Trajectory) { t.Turns = []schemas.Turn{{Start: 2, End: 1}} }, "turn 0"},
		{"turn before the first token", func(t *schemas.Trajectory) { t.Turns = []schemas.Turn{{Start: -1, End: 1}} }, "turn 0"},
		{"turn of a segment below 0", func(t *schemas.Trajectory) { t.Turns = []schemas.Turn{{Segment: -1}} }, "turn 0"},
		{"turn of the segment before", func(t *schemas.Trajectory) {
			t.Segments = append(t.Segments, t.Segments[0])
			t.Turns = []schemas.Turn{{Segment: 1, End: 1}, {Segment: 0, Start: 2, End: 3}}
		}, "turn 1"},
		{"turns over each other", func(t *schemas.Trajectory) { t.Turns = []schemas.Turn{{End: 2}, {Start: 1, End: 3}} }, "turn 1"},
		{"long log-probabilities", func(t *schemas.Trajectory) { t.Segments[0].Logprobs = append(t.Segments[0].Logprobs, 0) }, "4 log-probability"},
		{"long versions", func(t *schemas.Trajectory) { t.Segments[0].Versions = append(t.Segments[0].Versions, 0) }, "4 version"},
		{"as long as the model takes", func(t *schemas.Trajectory) { t.Segments[0] = segment(1, 0, 1, 1, 1, 1, 1, 1, 1) }, ""},
		{"an empty segment", func(t *schemas.Trajectory) { t.Segments = append(t.Segments, schemas.Segment{}) }, ""},
		{"the first token of the vocabulary", func(t *schemas.Trajectory) { t.Segments[0].Tokens[1] = 0 }, ""},
		{"log-probability that is none", func(t *schemas.Trajectory) { t.Segments[0].Logprobs[1] = float32(math.NaN()) }, "log-probability"},
		{"log-probability of nothing", func(t *schemas.Trajectory) { t.Segments[0].Logprobs[1] = leastLogprob - 1 }, "log-probability"},
		{"turn of no segment", func(t *schemas.Trajectory) { t.Turns = []schemas.Turn{{Segment: 1}} }, "turn 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tr := &schemas.Trajectory{Segments: []schemas.Segment{segment(1, 0, 1, 1)}}
			c.spoil(tr)
			err := check(tr)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestASamplePassedOverHasNoRow(t *testing.T) {
	t.Parallel()
	first, other, second := trajectory(0, 0, 0, 1, 7, 3), trajectory(0, 0, 1, 1, 6, 3), trajectory(0, 0, 2, 1, 5, 3)
	whole := NewRows(&Batch{Groups: []Taken{{Members: []Member{{Trajectory: first, Reward: 1}, {Trajectory: other, PassedOver: true}, {Trajectory: second}}}}})
	without := NewRows(&Batch{Groups: []Taken{{Members: []Member{{Trajectory: first, Reward: 1}, {Trajectory: second}}}}})
	require.Equal(t, without, whole)
}
